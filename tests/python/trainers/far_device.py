"""A device that is none: torch takes its tensors for those of a device called "far", whose work is done later, in order.

Everything but pinned memory is as torch has it for CUDA: streams, events, copies that do not block. It needs PyTorch
2.13, whose way to make devices in Python is experimental.
"""

import queue
import threading

import torch
from torch.utils import backend_registration
from torch.utils._pytree import tree_map


class Event:
    """Nobody waits for it by synchronize(), nor for a stream: torch's, ended in a thread of a process that ends, abort that."""

    def __init__(self):
        self.reached = threading.Event()

    def query(self):
        assert DEVICE.is_current(), "torch would look with the thread's own device, and make a context there"
        return self.reached.is_set()


class Stream:
    """Work in order, on a thread."""

    def __init__(self, device=None):
        self._work = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            self._work.get()()

    def launch(self, work):
        self._work.put(work)

    def record_event(self):
        event = Event()
        self.launch(event.reached.set)
        return event

    def wait_event(self, event):
        self.launch(event.reached.wait)

    def finish(self):
        self.record_event().reached.wait()


class _Current:
    """The device is that of the calling thread, which else is another but for the main thread."""

    def __init__(self, device):
        assert device.type == "far", device

    def __enter__(self):
        self._before = DEVICE.is_current()
        DEVICE.local.current = True

    def __exit__(self, *_):
        DEVICE.local.current = self._before


class _On:
    """As torch has it, it would go back to a stream of the current device, and open that for it."""

    def __init__(self, stream):
        self._stream = stream

    def __enter__(self):
        assert DEVICE.is_current()
        self._before = DEVICE.current_stream()
        DEVICE.local.stream = self._stream

    def __exit__(self, *_):
        DEVICE.local.stream = self._before


class _Module:
    """What torch.far is."""

    Stream = Stream
    stream = _On
    device = _Current

    def __init__(self):
        self.default = Stream()
        self.local = threading.local()

    def current_stream(self, device=None):
        return getattr(self.local, "stream", self.default)

    def is_current(self):
        return getattr(self.local, "current", threading.current_thread() is threading.main_thread())

    def is_available(self):
        return True

    is_initialized = is_available

    def device_count(self):
        return 1

    def current_device(self):
        return 0

    def _is_in_bad_fork(self):
        return False

    def manual_seed_all(self, seed):
        pass


DEVICE = _Module()


class Future(torch.futures.Future):
    """As torch has it where it knows the device: who waits is put behind what the result was made by, and a callback has a stream
    of its own."""

    def set_result(self, result):
        self._reached = DEVICE.current_stream().record_event()
        super().set_result(result)

    def wait(self):
        result = super().wait()
        DEVICE.current_stream().wait_event(self._reached)
        return result

    def then(self, callback):
        told = Future()

        def run(_):
            stream = DEVICE.Stream()
            stream.wait_event(self._reached)
            with DEVICE.device(torch.device("far:0")), DEVICE.stream(stream):
                try:
                    told.set_result(callback(self))
                except Exception as error:
                    told.set_exception(error)
        super().then(run)
        return told


def _raw(one):
    return one.raw if isinstance(one, Far) else one


class Far(torch.Tensor):
    """A tensor of the device, around one of the host."""

    @staticmethod
    def __new__(cls, raw):
        made = torch.Tensor._make_wrapper_subclass(cls, raw.size(), strides=raw.stride(), dtype=raw.dtype, device="far:0")
        made.raw = raw
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        stream = DEVICE.current_stream()
        if function.__name__.startswith("copy_"):
            target, source = _raw(args[0]), _raw(args[1])
            stream.launch(lambda: target.copy_(source))
            if not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False)):
                stream.finish()
            return args[0]
        stream.finish()
        device = kwargs.pop("device", None)
        result = function(*tree_map(_raw, args), **tree_map(_raw, kwargs))
        if device is not None and torch.device(device).type == "cpu":
            return result
        return tree_map(lambda one: Far(one) if isinstance(one, torch.Tensor) else one, result)


def far(tensor):
    return Far(tensor.clone())


backend_registration._setup_privateuseone_for_python_backend("far", backend_module=DEVICE)
_library = torch.library.Library("aten", "IMPL")


def _empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    return Far(torch.empty_strided(size, stride, dtype=dtype))


def _empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return Far(torch.empty(size, dtype=dtype))


_library.impl("empty_strided", _empty_strided, "PrivateUse1")
_library.impl("empty.memory_format", _empty, "PrivateUse1")
