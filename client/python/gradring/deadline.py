"""The time of a wait, which its parts share."""

from __future__ import annotations

import math
import time

FOR_EVER = 366 * 86400.0  # seconds, which the daemon's op-deadline bounds


def checked(timeout, call: str) -> float:
    """Seconds that somebody gives, up to FOR_EVER. Raises TypeError or ValueError for what is none, in the words of the call."""
    if not hasattr(timeout, "__float__"):
        raise TypeError(f"gradring: {call.format(repr(timeout))}: it takes seconds, as a number")
    seconds = float(timeout)
    if not seconds >= 0:  # nor is it where it is NaN
        raise ValueError(f"gradring: {call.format(repr(timeout))}: it takes seconds, from 0 on")
    return min(seconds, FOR_EVER)


class Deadline:
    """Some seconds from when it is made; after 0 a wait is a look, now or later."""

    __slots__ = ("given", "_at")

    def __init__(self, seconds: float = FOR_EVER):
        self.given = seconds
        self._at = time.monotonic() + min(seconds, FOR_EVER)

    def seconds(self) -> float:
        """What is left; 0 when it is over."""
        return max(self._at - time.monotonic(), 0.0)

    def milliseconds(self) -> int:
        return math.ceil(1000 * self.seconds())


LOOK = Deadline(0)
