"""Ops on tensors of devices: a thread for each group copies them to the host, submits, and keeps the order."""

from __future__ import annotations

import queue
import threading
from typing import Callable

from .devices import Device

_CLOSED = "gradring: the process group was destroyed before the device had come to this op"


class Stage:
    """Submits the ops of a group that have to wait for a device, and all that come behind them, in their order.

    Thread-safe. Nobody who submits waits for a device. Results are brought back by whoever waits for the op.
    """

    def __init__(self):
        self._waiting: queue.SimpleQueue = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._under_way = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def busy(self) -> bool:
        return self._under_way > 0

    def wait_until_idle(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: self._under_way == 0)

    def add(self, fetches: list[tuple[Device, list]], submit: Callable[[], None],
            fail: Callable[[Exception], None]) -> None:
        """`fetches`: what is copied from which device, from the place that the calling thread has reached on it.
        `submit()` is called behind all that were added before; `fail(error)`, if it or a copy raises, or it is too
        late."""
        marked = [(device, device.mark(), pairs) for device, pairs in fetches]
        with self._lock:
            late = self._closed  # the thread may have gone
            if not late:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="gradring-stage", daemon=True)
                    self._thread.start()
                self._under_way += 1
                self._waiting.put((marked, submit, fail))
        if late:
            fail(RuntimeError(_CLOSED))

    def close(self) -> None:
        """What was not submitted yet fails; a copy under way is waited for, for a second."""
        with self._lock:
            self._closed = True
            thread = self._thread
            self._waiting.put(None)
        if thread is not None:
            thread.join(1)

    def _run(self):
        while (item := self._waiting.get()) is not None:
            marked, submit, fail = item
            try:
                if self._closed:
                    raise RuntimeError(_CLOSED)
                for device, mark, pairs in marked:
                    device.fetch(mark, pairs)
                submit()
            except Exception as error:  # whoever waits for the op must hear of it
                fail(error)
            finally:
                del item, marked, submit, fail  # tensors, which must not live until the next op
                with self._lock:
                    self._under_way -= 1
                    self._idle.notify_all()
