"""Who ends by an exception tells the other ranks. They would wait for it else, or be told that it had left."""

from __future__ import annotations

import multiprocessing.util
import sys
from functools import partial

from . import _native


def _tell(shown_by, kind, error, trace):
    try:
        shown_by(kind, error, trace)
    finally:
        if not hasattr(sys, "ps1"):  # at a prompt the process goes on
            _abort(kind, error)


def _abort(kind, error):
    _native.abort_all(f"ended by {in_a_line(kind, error)}")


def in_words(error) -> str:
    try:
        return str(error)
    except Exception:  # it is the user's, and may be anything
        return ""


def in_a_line(kind, error) -> str:
    lines = in_words(error).strip().splitlines()
    told = f"{kind.__name__}: {lines[0]}" if lines else kind.__name__
    return told.encode(errors="replace").decode()


def _tell_as_child():
    """Where multiprocessing has started the process nobody calls excepthook, but finalizers run while the exception is under way.
    mp.spawn has made it a SystemExit by then."""
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit) and error.code not in (None, 0):
        error = error.__context__
    if error is not None and not isinstance(error, SystemExit):
        _abort(type(error), error)


def _watch_child(*_):
    multiprocessing.util.Finalize(None, _tell_as_child, exitpriority=100)


sys.excepthook = partial(_tell, sys.excepthook)
_watch_child()
# A child begins by forgetting what finalizers there were, also those of a module that it was imported with.
multiprocessing.util.register_after_fork(_watch_child, _watch_child)
