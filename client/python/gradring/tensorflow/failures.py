"""The errors of ops in graphs. TensorFlow makes errors of its own of them, which have the text and nothing else."""

from __future__ import annotations

import collections
import copy
import threading
from typing import Callable

import tensorflow as tf

from ..errors import GradringError, found_by

_lock = threading.Lock()
_latest: collections.deque = collections.deque(maxlen=16)  # ops of a graph may fail side by side, and one is told


def noted(work: Callable) -> Callable:
    """The same, whose errors are found again behind TensorFlow's."""
    def noting(*arrays):
        try:
            return work(*arrays)
        except GradringError as error:
            with _lock:
                _latest.append(copy.copy(error))  # not its traceback, whose frames have arrays
            raise
    return noting


def _behind(error: Exception) -> GradringError | None:
    if not isinstance(error, tf.errors.OpError):
        return None
    with _lock:
        found = next((one for one in reversed(_latest) if str(one) in error.message), None)
        if found is not None:
            _latest.clear()
    if found is None and f"{GradringError.__name__}: " in error.message:  # raised by a tf.py_function of the user's
        return GradringError(error.message)
    return found


found_by(_behind)
