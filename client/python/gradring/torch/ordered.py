"""Ops on tensors of devices whose streams wait for ops by themselves: nobody's thread does."""

from __future__ import annotations

import collections
import contextlib
import os
import threading

import torch

from .._native import Code
from ..deadline import FOR_EVER, LOOK, Deadline
from ..errors import GradringError
from .captures import aside
from .devices import Ordered
from .untraced import untraced
from .work import Work

_LARGE = 256 << 10  # bytes, whose way back takes longer than a stream's wait for another

# As torch has it for NCCL: whoever waits is to know how it ended.
_BLOCKING = "GRADRING_TORCH_BLOCKING_WAIT"


def waits_block() -> bool:
    return os.environ.get(_BLOCKING, "").strip().lower() not in ("", "0", "false", "no", "off")


@untraced
class OrderedWork(Work):
    """One collective whose result streams wait for, and bring.

    `wait` has the calling thread's current stream wait for the op and bring the result, a future a stream of the group's own;
    neither waits itself, unless GRADRING_TORCH_BLOCKING_WAIT is set or the driver cannot do it. If the op fails, streams go on with
    outputs that mean nothing, and the error is raised by whatever is called next: `wait` of this or a later work, or the start of
    an op.

    Some thread has to complete() it, which keeps it alive meanwhile: the device uses tensors that it holds.
    """

    _by = None  # the stream that brings the result
    _reached = None  # the event behind it
    _late: GradringError | None = None
    _told = False

    def __init__(self, what, requests, moves, outputs, finish, timeout, device: Ordered, stream):
        """`moves`: of the requests. `finish`: None if that is all. `stream`: the group's own."""
        super().__init__(what, requests, outputs, finish, timeout, device)
        self._moves = moves
        self._stream = stream
        self._ordering = threading.Lock()
        # What is large comes back while others are computed; and nobody but us keeps what a result passes through.
        self._by_own = finish is not None or any([move.brings > _LARGE for move in moves])
        if self._by_own:
            self._order(stream, LOOK)

    def wait_by(self, deadline):
        """True when the current stream waits for it. Raises GradringError if it is known to have failed."""
        if self._late is not None:
            self._raise(self._late)
        current = self._device.current()
        try:
            if waits_block():
                self._complete(deadline)
            elif not self._done and not self._order(self._stream if self._by_own else current, deadline):
                raise self._too_late(deadline)
        except GradringError as error:
            self._told |= error.code != Code.DEADLINE
            raise
        if self._error is not None:
            self._raise(self._error)
        if self._by is not current:
            current.wait_event(self._reached)
        return True

    def is_completed(self):
        if self._error is not None or self._late is not None:
            return True
        if (reached := self._reached) is not None:
            with aside():
                if not self._device.has_come_to(reached):
                    return False
        return super().is_completed()

    def get_future(self):
        with contextlib.suppress(GradringError):  # of which the future tells
            if not waits_block() and self._order(self._stream, LOOK):
                with self._lock:
                    if self._future is None and self._error is None:
                        self._future = self._device.future()
                        with self._device.on(self._by):
                            self._future.set_result(self._outputs)
        return super().get_future()

    @staticmethod
    def complete(works, tell):
        """Waits for the end of the first of them, in a thread that has nothing else to do, and lets go of all tensors of it,
        and of those behind it that have ended as well: takes them out of the deque. `tell(work)`: of each that failed.

        Of a result that another stream than the group's own brings, whoever waited by that has the tensors."""
        with aside():
            ended = [works.popleft()]
            ended[0]._await_end()
            while works and works[0]._has_ended():
                ended.append(works.popleft())
            for work in ended:  # which need not have come to that stream in this order
                # Of one that failed another thread may be about to set these two, the event last.
                if (reached := work._reached) is not None and work._by is work._stream:
                    work._device.wait_for(reached)
        for work in ended:
            work._finish, work._moves = None, ()
            if work._error or work._late:
                tell(work)

    def _await_end(self):
        try:
            self._complete_late()
        except Exception as error:  # whoever looks next must hear of it
            self._end(error)

    def _has_ended(self):
        try:
            return self._complete(LOOK)
        except Exception as error:  # likewise
            self._end(error)
            return True

    def _complete_late(self):
        try:
            self._complete(Deadline(self._timeout))
        except GradringError as error:
            if error.code != Code.DEADLINE:
                raise
            self._late = error
            self._complete(Deadline(FOR_EVER))

    def tell(self):
        """Raises the error, if there is one that nobody has heard of."""
        error = self._late or self._error
        if error is not None and not self._told:
            self._raise(error)

    def _raise(self, error):
        self._told = True
        raise error

    def _order(self, stream, deadline):
        """Unless that is done, puts this stream behind the op, and the result's way home onto it. False: that takes somebody who
        waits, and the time is over."""
        if not self._ordering.acquire(timeout=deadline.seconds()):
            return False
        try:
            if self._reached is not None:
                return True
            for request, move in zip(self._requests, self._moves):
                left = deadline.milliseconds()
                done = request.wait_on_stream(stream.cuda_stream, left) if move.brings else request.wait(left)
                if not done:
                    return False
            if (finish := self._finish) is not None:
                with torch.no_grad(), self._device.on(stream):
                    finish()
            self._by, self._reached = stream, stream.record_event()
            return True
        finally:
            self._ordering.release()

    def _settle(self):
        self._order(self._stream, Deadline(FOR_EVER))
        if waits_block() or self._end_told is not None:  # who is told of the end may look at the result
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
