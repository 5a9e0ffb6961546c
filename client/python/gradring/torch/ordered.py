"""Ops on tensors of devices whose streams wait for ops by themselves: nobody's thread does."""

from __future__ import annotations

import collections
import os
import threading
from datetime import timedelta

import torch

from .._native import Code
from ..errors import GradringError
from .captures import aside
from .devices import Ordered
from .work import Work

_FOR_EVER = 366 * 86400  # seconds, which the daemon's op-deadline bounds

# As torch has it for NCCL: whoever waits is to know how it ended.
_BLOCKING = "GRADRING_TORCH_BLOCKING_WAIT"


def waits_block() -> bool:
    return os.environ.get(_BLOCKING, "0") not in ("", "0")


class OrderedWork(Work):
    """One collective whose result a stream of the group's own waits for, and brings.

    `wait` puts the calling thread's current stream behind that, and so does a future; neither waits itself, unless
    GRADRING_TORCH_BLOCKING_WAIT is set or the driver cannot do it. If the op fails, streams go on with outputs that mean
    nothing, and the error is raised by whatever is called next: `wait` of this or a later work, or the start of an op.

    Some thread has to complete() it, which keeps it alive meanwhile: the device uses tensors that it holds.
    """

    def __init__(self, what, requests, brings, outputs, finish, timeout, device: Ordered, stream, tensors):
        """`brings`: for each request, whether it has a result here. `finish`: None if that is all. `stream`: by which results
        come. `tensors`: whatever the device uses until the end."""
        super().__init__(what, requests, outputs, self._settle, timeout, device)
        self._ordered = list(zip(requests, brings, strict=True))
        self._bring = finish
        self._stream = stream
        self._tensors = tensors
        self._ordering = threading.Lock()
        self._reached = None  # the event behind the result
        self._late = None
        self._told = False
        self._by_itself = self._order(0)  # the stream waits; else somebody has to in its stead

    def wait(self, timeout=timedelta(0)):
        """True when the current stream waits for it. Raises GradringError if it is known to have failed."""
        seconds = (timeout.total_seconds() if timeout else 0) or self._timeout
        if self._late is not None:
            self._raise(self._late)
        if waits_block():
            self._complete(seconds)
        elif not self._done and not self._order(seconds):
            raise self._too_late(seconds)
        if self._error is not None:
            self._raise(self._error)
        self._device.put_behind(self._reached)
        return True

    def is_completed(self):
        if self._error is not None or self._late is not None:
            return True
        reached = self._reached
        with aside():
            there = reached is not None and self._device.has_come_to(reached)
        return there and super().is_completed()

    def get_future(self):
        if waits_block() or not self._by_itself:
            return super().get_future()
        with self._lock:
            if self._future is None and self._error is None:
                self._future = self._device.future()
                with self._device.on(self._stream):
                    self._future.set_result(self._outputs)
        return super().get_future()  # also what tells of an error

    @staticmethod
    def complete(works, tell):
        """Waits for the end of the first of them, in a thread that has nothing else to do, and lets go of all tensors of it,
        and of those behind it that have ended as well: takes them out of the deque. Their results come by one stream.
        `tell(work)`: of each that failed."""
        with aside():
            ended = [works.popleft()]
            ended[0]._await_end()
            while works and works[0]._has_ended():
                ended.append(works.popleft())
            brought = next((work for work in reversed(ended) if work._reached is not None), None)
            if brought is not None:
                brought._device.wait_for(brought._reached)
        for work in ended:
            work._ordered, work._bring, work._tensors = [], None, ()
            if work._error or work._late:
                tell(work)

    def _await_end(self):
        try:
            self._complete_late()
        except Exception as error:  # whoever looks next must hear of it
            self._end(error)

    def _has_ended(self):
        try:
            return self._complete(0)
        except Exception as error:  # likewise
            self._end(error)
            return True

    def _complete_late(self):
        try:
            self._complete(self._timeout)
        except GradringError as error:
            if error.code != Code.DEADLINE:
                raise
            self._late = error
            self._complete(_FOR_EVER)

    def tell(self):
        """Raises the error, if there is one that nobody has heard of."""
        error = self._late or self._error
        if error is not None and not self._told:
            self._raise(error)

    def _raise(self, error):
        self._told = True
        raise error

    def _order(self, seconds):
        """Puts the stream behind the op, and the result's way home onto the stream. False: that takes somebody who
        waits, and the time is over."""
        with self._ordering:
            if self._reached is not None:
                return True
            milliseconds = int(seconds * 1000)
            for request, brings in self._ordered:
                done = request.wait_on_stream(self._stream.cuda_stream, milliseconds) if brings else \
                    request.wait(milliseconds)
                if not done:
                    return False
            if self._bring is not None:
                with torch.no_grad(), self._device.on(self._stream):
                    self._bring()
            self._reached = self._stream.record_event()
            return True

    def _settle(self):
        self._order(_FOR_EVER)
        if waits_block() or not self._by_itself:  # who is told of the end may look at the result
            with aside():
                self._device.wait_for(self._reached)


class Unheard:
    """Works that failed, until somebody hears of it."""

    def __init__(self):
        self._works: collections.deque[OrderedWork] = collections.deque(maxlen=64)

    def add(self, work: OrderedWork) -> None:
        self._works.append(work)

    def tell(self) -> None:
        """Raises the oldest error."""
        while self._works:
            self._works.popleft().tell()
