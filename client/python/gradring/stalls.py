"""Warnings of ops that some rank does not come to."""

from __future__ import annotations

import logging
import os

from . import _native

_VARIABLE = "GRADRING_STALL_WARNING"
_SECONDS = 60.0


def watch() -> None:
    """Before a job is joined: as the environment says.

    Raises:
        ValueError: the variable makes no sense.
    """
    text = os.environ.get(_VARIABLE, "")
    try:
        seconds = float(text) if text else _SECONDS
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{_VARIABLE} is {text!r}: give the seconds of a wait after which to warn, or 0 for never")
    _native.warn_of_stalls(seconds)


def under_way(requests) -> str:
    """Why a wait for them has ended too early: half a sentence."""
    told = (request.progress() for request in list(requests))  # which others may wait for, and take out
    return next((words for words in told if words), "it is still under way; 'gradringctl job NAME' says who waits for whom")


def tell(rank: int, seconds: float, progress: str) -> None:
    """What the binding calls, at most once in so many seconds."""
    logging.getLogger("gradring").warning("gradring: rank %d has waited for %.0f s: %s", rank, seconds, progress)
