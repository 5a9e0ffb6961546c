"""Loads the part that is written in C++."""

import contextlib
import importlib
import os
import sys


def _load():
    """Behind TensorFlow with its own protobuf before all others: TensorFlow offers its, of another version, to whatever is
    loaded after it, and to call that ends the process. Not elsewhere: the C++ library, if nobody has loaded it yet, would be
    bound so as well, and for everybody."""
    if _is_for("gradring.torch"):
        # Where another has loaded the C++ library before it, PyTorch 2.11 was seen to crash in its own import (Ubuntu 24.04).
        with contextlib.suppress(ImportError):
            importlib.import_module("torch")
    flags = sys.getdlopenflags()
    own = getattr(os, "RTLD_DEEPBIND", 0) if "tensorflow" in sys.modules else 0
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_LOCAL | own)
    try:
        from . import _native
    finally:
        sys.setdlopenflags(flags)
    return _native


def _is_for(package):
    """Whether gradring is imported on the way to this package of it: Python tells nobody but its own importer."""
    frame = sys._getframe()
    while frame is not None:
        name = frame.f_locals.get("name") if frame.f_code.co_name == "_find_and_load" else None
        if name is not None and (name == package or name.startswith(package + ".")):
            return True
        frame = frame.f_back
    return False


native = _load()
