"""Loads the part that is written in C++."""

import os
import sys


def _load():
    """With its own protobuf before all others: TensorFlow offers its, of another version, to whatever is loaded after
    it, and to call that ends the process."""
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_LOCAL | getattr(os, "RTLD_DEEPBIND", 0))
    try:
        from . import _native
    finally:
        sys.setdlopenflags(flags)
    return _native


native = _load()
