"""Tensors on devices, whose memory the daemon does not see: how they come to the host and back."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from typing import Any, Protocol, Sequence

import torch

from .captures import aside

Pairs = Sequence[tuple[torch.Tensor, torch.Tensor]]  # (from, to)


class Device(Protocol):
    """One device. All of it may be called from any thread."""

    def host(self, tensor: torch.Tensor) -> torch.Tensor:
        """Dense memory of the host, of this shape and type, with anything in it."""

    def mark(self) -> Any:
        """The place that the calling thread's work on the device has reached."""

    def fetch(self, mark: Any, pairs: Pairs) -> None:
        """Copies to the host, if there is anything to copy, once the device has come to the mark. Returns when that is done."""

    def deliver(self, pairs: Pairs) -> None:
        """Copies to the device. Returns when that is done."""

    def wait_for(self, mark: Any) -> None:
        """Returns when the device has come to the mark."""

    def future(self) -> torch.futures.Future:
        """One that knows the device: whoever waits for what a callback computes there is put behind that."""


class Accelerator:
    """A Device that has streams and events, as CUDA and XPU do.

    Both ways have a stream of their own, so that copies neither wait for what trainers compute meanwhile nor keep it
    waiting. Copies are made by the device out of and into pinned memory.
    """

    def __init__(self, device: torch.device):
        self._torch = torch.get_device_module(device)
        self._device = device

    # Made when they are needed: NVIDIA's GPUs use them for sparse tensors alone.
    @functools.cached_property
    def _out(self):
        return self._torch.Stream(device=self._device)

    @functools.cached_property
    def _in(self):
        return self._torch.Stream(device=self._device)

    def host(self, tensor):
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)

    def mark(self):
        return self._torch.current_stream(self._device).record_event()

    def fetch(self, mark, pairs):
        self._out.wait_event(mark)
        self._copy(self._out, pairs)

    def deliver(self, pairs):
        # What reads these tensors was begun before the op was, which came behind it (mark).
        self._copy(self._in, pairs)

    def future(self):
        return torch.futures.Future(devices=[self._device])

    def has_come_to(self, event):
        # By itself torch would ask the device of the calling thread, and make a context there.
        with self._torch.device(self._device):
            return event.query()

    def wait_for(self, event):
        """Returns when the device has come to it. By looking: the event's own wait lets go of the interpreter's lock in C++, and
        if the interpreter ends meanwhile, the thread that comes back for it ends the process by an abort."""
        pause = 20e-6  # seconds
        while not self.has_come_to(event):
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)

    @contextlib.contextmanager
    def on(self, stream):
        """What is done inside is put on this stream, whichever device is the thread's: by itself torch would go back to a
        stream of that one, and make a context there."""
        with self._torch.device(self._device), self._torch.stream(stream):
            yield

    def _copy(self, stream, pairs):
        with torch.no_grad(), self.on(stream):
            for source, target in pairs:
                target.copy_(source, non_blocking=True)
            # Nobody but this thread may wait for it: the tensors are given back to others after that.
            self.wait_for(stream.record_event())


class Ordered(Accelerator):
    """NVIDIA's GPUs, by torch's name for them: the library copies what is there, and its streams wait for ops."""

    _STREAMS_MOST = 64  # PyTorch has 32 of a priority

    def __init__(self, device: torch.device):
        super().__init__(device)
        self._streams: dict[int, Any] = {}  # by their handles
        # What its compiled code asks: to make a Stream for each op takes as long as the op's copies.
        handle = getattr(torch._C, "_cuda_getCurrentRawStream", None) if device.type == "cuda" else None
        self._handle = functools.partial(handle, device.index) if handle is not None else None

    def current_handle(self) -> int:
        """CUDA's, of current()."""
        return self._handle() if self._handle is not None else self._torch.current_stream(self._device).cuda_stream

    def current(self):
        """The stream that the calling thread's work goes to."""
        handle = self.current_handle()
        stream = self._streams.get(handle)
        if stream is None:
            if len(self._streams) >= self._STREAMS_MOST:
                self._streams.clear()
            stream = self._streams[handle] = self._torch.current_stream(self._device)
        return stream

    def stream(self):
        """One that waits for ops. PyTorch gives the same 32 streams of a priority out again and again: a trainer's work is not
        to wait with it, so it is of those that few take."""
        return self._torch.Stream(device=self._device, priority=-1)

    def _copy(self, stream, pairs):
        with aside():
            super()._copy(stream, pairs)


_known: dict[torch.device, Device] = {}
_lock = threading.Lock()


def device_of(tensor: torch.Tensor) -> Device | None:
    """Where the tensor is; None: on the host. Raises TypeError for devices without streams."""
    if tensor.is_cpu:
        return None
    known = _known.get(tensor.device)
    if known is not None:
        return known
    with _lock:
        if tensor.device not in _known:
            _known[tensor.device] = _open(tensor.device)
        return _known[tensor.device]


def _open(device):
    try:
        known = torch.get_device_module(device)
    except RuntimeError:
        known = None
    if not hasattr(known, "Stream") or not known.is_available():
        raise TypeError(f"gradring has tensors of the CPU, CUDA and XPU, and this one is on {device}")
    # torch has AMD's under the name of CUDA.
    return Ordered(device) if device.type == "cuda" and torch.version.cuda else Accelerator(device)
