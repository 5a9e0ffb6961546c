"""What torch.distributed's async ops return."""

from __future__ import annotations

import atexit
import collections
import contextlib
import queue
import threading
import time
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist

from .. import _native
from .._native import Code
from ..deadline import LOOK, Deadline
from ..errors import GradringError
from ..stalls import under_way
from .chains import is_chained
from .devices import Device
from .untraced import untraced


@untraced
class Work(dist.Work):
    """One collective under way, of one or several of the library's requests, or soon under way.

    `wait` and `get_future` may be used both and from any thread. The outputs are written by the time
    that either tells of the end, and must not be looked at before.
    """

    _submitted: threading.Event | None = None  # none: when it was made
    _done = False
    _error: Exception | None = None
    _future: torch.futures.Future | None = None
    _end_told: torch.futures.Future | None = None
    _due: Deadline  # of the future

    def __init__(self, what, requests, outputs, finish, timeout, device: Device | None = None):
        """`requests`: None if they come later, by submitted(). `finish()`: run once, when all are done well.
        `timeout`: seconds, of wait(). `device`: that the outputs are on, if not the host."""
        super().__init__()
        self._what = what
        self._requests = requests or ()
        if requests is None:
            self._submitted = threading.Event()
        self._outputs = outputs
        self._finish = finish
        self._timeout = timeout
        self._device = device
        self._lock = threading.Lock()

    def submitted(self, requests):
        self._requests = requests
        self._submitted.set()

    def not_submitted(self, error):
        self._end(error)
        self._submitted.set()

    def wait(self, timeout=timedelta(0)):
        """True when it is done. Raises GradringError if it failed, or is not done in time."""
        return self.wait_by(self.deadline(timeout))

    def deadline(self, timeout):
        """Of a wait that begins now."""
        return Deadline((timeout.total_seconds() if timeout else 0) or self._timeout)

    def limit(self, seconds):
        """Of waits that have no time of their own."""
        self._timeout = seconds

    def wait_by(self, deadline):
        return self._complete(deadline)

    def is_completed(self):
        try:
            return self._complete(LOOK)
        except GradringError:
            return True

    def is_success(self):
        return self._done and self._error is None

    def exception(self):
        return self._error

    def synchronize(self):
        self.wait()

    def result(self):
        self.wait()
        return self._outputs

    def source_rank(self):
        raise NotImplementedError("gradring: a receive names the rank that it is from")

    def get_future(self):
        with self._lock:
            if self._future is not None:
                return self._future
            # torch's set_exception makes the exception the value, which DDP's C++ takes for a tensor. Only
            # the future of a callback that raises has an error that C++ sees.
            self._end_told = self._device.future() if self._device is not None else torch.futures.Future()
            self._future = self._end_told.then(self._unwrap)
            done = self._done
        if done:
            self._end_told.set_result(self._outputs)
            return self._future
        self._due = Deadline(self._timeout)
        # A callback may wait for it here, and nobody else would finish it.
        if _finisher.is_this_thread() or is_chained():
            while not self.end_by(self._due):
                pass
        else:
            _finisher.add(self)
        return self._future

    def end_by(self, deadline):
        """For whoever has the future: whether it has ended by then, well or not; and at the latest in time."""
        try:
            if self._is_done_by(deadline):
                return True
            if self._due.seconds() > 0:
                return False
            raise self._too_late(self._due)
        except Exception as error:  # whatever it is, whoever has the future must hear of it
            self._end(error)
            return True

    def _complete(self, deadline):
        """Whether it is done by then; unless that is a look, not to be done is an error."""
        if self._is_done_by(deadline):
            return True
        if deadline is LOOK:
            return False
        raise self._too_late(deadline)

    def _is_done_by(self, deadline):
        if self._submitted is not None and not self._submitted.wait(deadline.seconds()):
            return False
        for request in self._requests:
            if self._done:
                break
            try:
                if not request.wait(deadline.milliseconds()):
                    return False
            except GradringError as error:
                if error.code != Code.DEADLINE:
                    self._end(error)
                raise
        self._end(None)
        if self._error is not None:
            raise self._error
        return True

    def _too_late(self, deadline):
        if self._submitted is not None and not self._submitted.is_set():
            why = "the device has not come to it yet"
        else:
            why = under_way(self._requests)
        return GradringError(f"{self._what}: timeout after {deadline.given:g} s, and {why}", Code.DEADLINE)

    def _end(self, error):
        with self._lock:
            if self._done:
                return
            if error is None:
                self._settle()
            self._error = error
            self._done = True
            self._requests = ()
            told = self._end_told
        if told is not None:  # callbacks run here, and may ask for this very future
            told.set_result(self._outputs)

    def _settle(self):
        self._finish()

    def _unwrap(self, told):
        if self._error is not None:
            raise self._error
        return told.value()


@untraced
class Together(dist.Work):
    """Several works of a group as one."""

    def __init__(self, works: list[Work]):
        super().__init__()
        self._works = works

    def wait(self, timeout=timedelta(0)):
        if self._works:
            deadline = self._works[0].deadline(timeout)
            for work in self._works:
                work.wait_by(deadline)
        return True

    def is_completed(self):
        return all(work.is_completed() for work in self._works)

    def is_success(self):
        return all(work.is_success() for work in self._works)

    def exception(self):
        return next((work.exception() for work in self._works if work.exception() is not None), None)

    def synchronize(self):
        self.wait()

    def result(self):
        return [one for work in self._works for one in work.result()]


class Finisher:
    """A thread that waits for works, one after the other, as nobody else does."""

    everybody: weakref.WeakSet[Finisher] = weakref.WeakSet()

    def __init__(self, name, wait, rest=0.0):
        """`wait(works)`, of a deque, returns when it has waited for the end of the first one at least, and takes out those that
        have ended. `rest`: seconds for which works gather before any is looked at."""
        self._name = name
        self._wait = wait
        self._rest = rest
        self._works = queue.SimpleQueue()
        self._thread = None
        self._drops = False
        self._lock = threading.Lock()
        Finisher.everybody.add(self)

    def add(self, work):
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._works.put(work)

    def is_this_thread(self):
        return threading.current_thread() is self._thread

    def stop(self):
        """A wait under way goes on."""
        if self._thread is not None:
            self._works.put(None)

    def drop(self):
        """The same, and works that wait behind it are left alone."""
        self._drops = True
        self.stop()

    def join(self, seconds):
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self):
        works = collections.deque()
        while not self._drops and (works or self._gather(works)):
            self._wait(works)

    def _gather(self, works):
        """Whatever there is, and one at least. False: nothing more is to come."""
        if (work := self._works.get()) is None:
            return False
        works.append(work)
        if self._rest:
            time.sleep(self._rest)
        self._take(works)
        return True

    def _take(self, works):
        """Whatever has come meanwhile."""
        with contextlib.suppress(queue.Empty):
            while (work := self._works.get_nowait()) is not None:
                works.append(work)
            self._works.put(None)  # for when these are over


class AsTheyEnd(Finisher):
    """For works of all groups that have futures: they end in any order, and a callback of one may start what another waits
    for. Looks at all of them, the less often the longer nothing happens."""

    _OFTEN, _SELDOM = 1e-3, 0.25  # seconds between looks

    def __init__(self, name):
        super().__init__(name, self._wait_for_any)

    def _wait_for_any(self, works):
        began = time.monotonic()
        while not self._drops:
            pause = min(max((time.monotonic() - began) / 4, self._OFTEN), self._SELDOM)
            works[0].end_by(Deadline(pause))  # most end in order, and their callbacks are to run at once
            left = [work for work in works if not work.end_by(LOOK)]
            if len(left) < len(works):
                works.clear()
                works.extend(left)
                return
            self._take(works)


def stop_all(finishers):
    """Waits under way go on, for a second."""
    for one in finishers:
        one.stop()
    _join_all(finishers, 1)


def _join_all(finishers, seconds):
    until = time.monotonic() + seconds
    for one in finishers:
        one.join(max(until - time.monotonic(), 0))


_finisher = AsTheyEnd("gradring-finisher")


def _stop_at_exit():
    """Callbacks of futures need the interpreter, and so does whoever lets go of tensors: a thread that has PyTorch at work when
    there is none any more ends the process."""
    _native.end_waits()
    everybody = list(Finisher.everybody)
    for one in everybody:
        one.drop()
    _join_all(everybody, 10)  # for what each is at, on a machine that is busy


atexit.register(_stop_at_exit)
