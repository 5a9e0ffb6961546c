"""Who ends by an exception tells the other ranks. They would wait for it else, or be told that it had left."""

from __future__ import annotations

import sys
from functools import partial

from . import _native


def _tell(shown_by, kind, error, trace):
    try:
        shown_by(kind, error, trace)
    finally:
        if not hasattr(sys, "ps1"):  # at a prompt the process goes on
            _native.abort_all(f"ended by {_in_a_line(kind, error)}")


def _in_a_line(kind, error) -> str:
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # it is the user's, and may be anything
        lines = []
    told = f"{kind.__name__}: {lines[0]}" if lines else kind.__name__
    return told.encode(errors="replace").decode()


sys.excepthook = partial(_tell, sys.excepthook)
