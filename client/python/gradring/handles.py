"""Ops under way."""

from __future__ import annotations

import copy
import functools
import threading
from typing import Any, Callable

from ._native import Code
from .deadline import FOR_EVER, LOOK, Deadline, checked
from .errors import GradringError
from .stalls import under_way


def _deadline(timeout) -> Deadline:
    """Of wait(): None is for ever. Raises TypeError, ValueError."""
    if timeout is None:
        return Deadline(FOR_EVER)
    return Deadline(checked(timeout, "wait({})"))


class Handle:
    """An op that was started. Thread-safe; may be waited for as often as one likes.

    Whoever drops it without having waited gives up the result, not the op.
    """

    def poll(self) -> bool:
        """Whether wait() would return, or raise, at once."""
        raise NotImplementedError

    def wait(self, timeout: float | None = None) -> Any:
        """The result. Raises GradringError if the op failed, or is not done after `timeout` seconds (None: until the
        daemon's op-deadline ends it)."""
        raise NotImplementedError


class RequestHandle(Handle):
    """Of the library's requests; `finish()` makes the result when all are done well."""

    def __init__(self, requests, finish: Callable[[], Any]):
        self._lock = threading.RLock()
        self._requests = list(requests)
        self._finish = finish
        self._result = None
        self._error: GradringError | None = None

    def poll(self):
        try:
            return self._done_by(LOOK)
        except GradringError:
            return True

    def wait(self, timeout=None):
        if not self._done_by(_deadline(timeout)):
            raise _late(timeout, self._requests)
        return self._result

    def _done_by(self, deadline):
        if not self._lock.acquire(timeout=deadline.seconds()):
            return False  # somebody waits for it
        try:
            return self._wait_by(deadline)
        finally:
            self._lock.release()

    def _wait_by(self, deadline):
        if self._error is not None:
            raise copy.copy(self._error)
        try:
            while self._requests:
                if not self._requests[0].wait(deadline.milliseconds()):
                    return False
                self._requests.pop(0)
        except GradringError as error:
            if error.code != Code.DEADLINE:
                self._error = copy.copy(error)  # whose own traceback has this handle: neither would go, nor what its frames have
                self._requests.clear()
            raise
        if self._finish is not None:
            self._result = self._finish()
            self._finish = None
        return True

    def under_way(self):
        """What tells whether it is, and does not keep the result."""
        return functools.partial(_any_under_way, self._requests, self._lock)


def _any_under_way(requests, lock):
    if not lock.acquire(blocking=False):
        return True  # somebody waits for it
    try:
        return not all(one.wait(LOOK.milliseconds()) for one in requests)
    except GradringError:
        return False
    finally:
        lock.release()


class StagedHandle(Handle):
    """Of work that takes several ops, one after the other, on a thread of its own: nobody has to wait for the first
    for the second to start."""

    def __init__(self, work: Callable[[], Any]):
        self._work = work
        self._done = threading.Event()
        self._result = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="gradring-stages", daemon=True).start()

    def _run(self):
        try:
            self._result = self._work()
        except BaseException as error:  # whatever it is, whoever waits must hear of it
            self._error = error.with_traceback(error.__traceback__.tb_next)  # without this frame, which has the handle
        finally:
            self._work = None
            self._done.set()

    def poll(self):
        return self._done.is_set()

    def wait(self, timeout=None):
        if not self._done.wait(_deadline(timeout).seconds()):
            raise _late(timeout)
        if self._error is not None:
            raise copy.copy(self._error) if isinstance(self._error, GradringError) else self._error
        return self._result

    def under_way(self):
        done = self._done
        return lambda: not done.is_set()


class MappedHandle(Handle):
    """Another handle's result, seen through a function, which is called once."""

    def __init__(self, handle: Handle, function: Callable[[Any], Any]):
        self._handle = handle
        self._function = function
        self._lock = threading.Lock()
        self._result = None

    def poll(self):
        return self._handle.poll()

    def wait(self, timeout=None):
        result = self._handle.wait(timeout)
        with self._lock:
            if self._function is not None:
                self._result = self._function(result)
                self._function = None
        return self._result


class Names:
    """Names of ops of one group of ranks, each in use by one at a time."""

    # A name costs the daemons memory, and names are counted by use: so few of them serve any number of ops.
    AUTOMATIC = 256
    KEPT = 256  # names of ops that are over, before they are looked through

    def __init__(self):
        self._lock = threading.Lock()
        # Not the handles: an op whose handle was dropped is under way nevertheless, and results are not to be kept.
        self._used: dict[str, Callable[[], bool]] = {}
        self._most = self.KEPT
        self._made: dict[str, int] = {}
        self._last: dict[str, threading.Event | None] = {}  # of each automatic name: set when its last op is over

    def check(self, name: str | None, kind: str) -> str:
        """What the op is called in the daemons; empty: by its place in the program. Raises ValueError."""
        if name is None:
            return ""
        full = f"{kind}.{name}"
        if len(full.encode()) > 500:
            raise ValueError(f"gradring: the name {name[:60]!r}... has more than 500 bytes")
        if "\0" in full:  # where the daemons would take it to end
            raise ValueError(f"gradring: the name {name!r} has a NUL")
        with self._lock:
            under_way = self._used.get(full)
        if under_way is not None and under_way():
            raise ValueError(f"gradring: the {kind} named {name!r} is still under way; names are for one op at a time: "
                             "synchronize the first, or name them differently")
        return full

    def automatic(self, kind: str) -> str:
        """For an op of several parts, whose place in the program does not tell all of them. The same on all ranks,
        where these start such ops in the same order."""
        with self._lock:
            number = self._made.get(kind, 0)
            self._made[kind] = (number + 1) % self.AUTOMATIC
            name = f"{kind}.#{number}"
            self._last.setdefault(name, None)
        return name

    def in_turn(self, full: str, work: Callable[[], Any]) -> Callable[[], Any]:
        """The work of an op, behind that of the one before it of the same automatic name. Two at once would be matched
        with each other's parts, and other ranks' threads may go in another order."""
        over = threading.Event()
        with self._lock:
            if full not in self._last:
                return work
            before, self._last[full] = self._last[full], over

        def in_turn():
            try:
                if before is not None:
                    before.wait()
                return work()
            finally:
                over.set()
        return in_turn

    def hold(self, full: str, handle: RequestHandle | StagedHandle) -> None:
        if not full:
            return
        with self._lock:
            if len(self._used) >= self._most:
                self._used = {name: under_way for name, under_way in self._used.items() if under_way()}
                self._most = 2 * len(self._used) + self.KEPT
            self._used[full] = handle.under_way()

    def start_anew(self) -> None:
        """Where some ranks have counted less than others: after they came in, or after they were away."""
        with self._lock:
            self._made.clear()


def poll(handle: Handle) -> bool:
    """Whether synchronize() would return at once."""
    return _known(handle, "poll").poll()


def synchronize(handle: Handle | None) -> Any:
    """Waits for an op that was started, and returns its result. Raises GradringError if it failed."""
    return _known(handle, "synchronize").wait() if handle is not None else None


def _known(handle, what: str) -> Handle:
    if not isinstance(handle, Handle):
        raise TypeError(f"gradring: {what}() of {handle!r}, which is no handle: it takes what an op's _async form returned")
    return handle


def _late(seconds, requests=()):
    return GradringError(f"timeout after {seconds:g} s, and {under_way(requests)}", Code.DEADLINE)
