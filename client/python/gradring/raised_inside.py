"""Errors of ops that run inside a framework, which makes errors of its own of them: those have the text and nothing else."""

from __future__ import annotations

import collections
import copy
import threading
from typing import Callable

from .errors import GradringError

_lock = threading.Lock()
_latest: collections.deque = collections.deque(maxlen=16)  # ops of a graph may fail side by side, and one is told


def noted(work: Callable) -> Callable:
    """The same, whose errors behind() finds again."""
    def noting(*arrays):
        try:
            return work(*arrays)
        except GradringError as error:
            with _lock:
                _latest.append(copy.copy(error))  # not its traceback, whose frames have arrays
            raise
    return noting


def behind(text: str) -> GradringError | None:
    """Of a framework's error with this text; None where that is not of an op."""
    with _lock:
        found = next((one for one in reversed(_latest) if str(one) in text), None)
        if found is not None:
            _latest.clear()
    if found is None and f"{GradringError.__name__}: " in text:  # raised by a callback of the user's
        return GradringError(text)
    return found
