"""The far device once more, as a GPU of NVIDIA's would be: its memory and streams are those of the tests' driver, which
gradring's library takes for CUDA's."""

import bisect
import contextlib
import ctypes
import itertools
import threading

import far_device
import torch
from far_device import DEVICE, Far

from gradring import _native
from gradring.torch import devices


class _Gpu(ctypes.Structure):
    """TestGpu of tests/client/cuda_twin.h, and what CudaTwin has next to it."""

    _fields_ = [("alloc", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_size_t, ctypes.c_bool)),
                ("free", ctypes.CFUNCTYPE(None, ctypes.c_uint64)),
                ("make_stream", ctypes.CFUNCTYPE(ctypes.c_void_p)),
                ("end_stream", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
                ("fill_later", ctypes.c_void_p),
                ("hold", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_bool)),
                ("wait_for", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
                ("read", ctypes.c_void_p),
                ("write", ctypes.c_void_p),
                ("behind", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint64)),
                ("capture", ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool))]


_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Driver:
    def __init__(self, path):
        self.library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self.gpu = _Gpu.in_dll(self.library, "gradring_cuda_twin")
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self._callbacks = {}
        self._numbers = itertools.count(1)
        self._run = _HostFunction(lambda number: self._callbacks.pop(number)())

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        assert result == 0, f"{name}: error {result}"

    def inside(self, name, *arguments, may=()):
        """With the context that they need; gives back 0, or one of `may`."""
        popped = ctypes.c_void_p()
        self.call("cuCtxPushCurrent_v2", self.context)
        result = getattr(self.library, name)(*arguments)
        self.call("cuCtxPopCurrent_v2", ctypes.byref(popped))
        assert result == 0 or result in may, f"{name}: error {result}"
        return result

    def launch(self, stream, work):
        number = next(self._numbers)
        self._callbacks[number] = work
        self.inside("cuLaunchHostFunc", ctypes.c_void_p(stream), self._run, ctypes.c_void_p(number))


class _Event:
    def __init__(self, driver):
        self.handle = ctypes.c_void_p()
        self._driver = driver
        driver.inside("cuEventCreate", ctypes.byref(self.handle), 0)
        self._done = threading.Event()
        self.tell = self._done.set

    def query(self):
        assert DEVICE.is_current(), "torch would look with the thread's own device, and make a context there"
        self._driver.inside("cuEventQuery", self.handle, may=(_NOT_READY,))  # which captures may forbid
        return self._done.is_set()


class _Stream:
    def __init__(self, device=None, priority=0, handle=None):
        self.cuda_stream = _driver.gpu.make_stream() if handle is None else handle

    def launch(self, work):
        _driver.launch(self.cuda_stream, work)

    def record_event(self):
        event = _Event(_driver)
        self.launch(event.tell)  # before whoever waits for it goes on
        _driver.inside("cuEventRecord", event.handle, ctypes.c_void_p(self.cuda_stream))
        return event

    def wait_event(self, event):
        _driver.inside("cuStreamWaitEvent", ctypes.c_void_p(self.cuda_stream), event.handle, 0)

    def finish(self):
        _driver.gpu.wait_for(self.cuda_stream)

    def hold(self, on):
        _driver.gpu.hold(self.cuda_stream, on)


class _Memory:
    """Where tensors of the device are, by where the host's memory behind them is. Nothing is given back."""

    def __init__(self):
        self._bases: list[int] = []
        self._ranges: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def address_of(self, host):
        """0: it is not of the device."""
        with self._lock:
            at = bisect.bisect_right(self._bases, host) - 1
            base = self._bases[at] if at >= 0 else 0
            size, address = self._ranges.get(base, (0, 0))
            return address + host - base if host < base + size else 0

    def resident(self, raw):
        """The same numbers in memory of the device."""
        if raw.numel() == 0 or self.address_of(raw.data_ptr()):
            return raw
        flat = raw.contiguous().reshape(-1)
        size = flat.numel() * flat.element_size()
        address = _allocate(size)
        base = _driver.gpu.behind(address)
        with self._lock:
            bisect.insort(self._bases, base)
            self._ranges[base] = (size, address)
        room = torch.frombuffer((ctypes.c_char * size).from_address(base), dtype=flat.dtype)
        room.copy_(flat)
        return torch.as_strided(room, raw.shape, raw.contiguous().stride())


_memory = _Memory()
_plain_new = Far.__new__


def _new(cls, raw):
    return _plain_new(cls, _memory.resident(raw))


def _allocate_in_pool(size):
    """As PyTorch does in gradring.torch.mem_pool()."""
    allocate = ctypes.CDLL(_native.__file__).gradring_torch_alloc
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    address = allocate(size, 0, None)
    assert address, "the library has no such memory"
    return address


@contextlib.contextmanager
def captured():
    """Another thread captures a stream into a graph, as torch.cuda.graph does."""
    stream = ctypes.c_void_p()
    _driver.inside("cuStreamCreate", ctypes.byref(stream), 1)
    thread = threading.Thread(target=_driver.gpu.capture, args=(stream, True))
    thread.start()
    thread.join()
    yield
    assert _driver.gpu.capture(stream, False), "somebody has spoilt it"


def use(path, pool=False):
    """Tensors of "far" are the driver's from now on; `pool`: by way of the library."""
    global _driver, _allocate
    _driver = _Driver(path)
    _allocate = _allocate_in_pool if pool else lambda size: _driver.gpu.alloc(size, False)
    Far.__new__ = staticmethod(_new)
    Far.data_ptr = lambda self: _memory.address_of(self.raw.data_ptr())
    far_device.Stream = _Stream
    type(DEVICE).Stream = _Stream
    DEVICE.default = _Stream(handle=0)
    devices._known[torch.device("far:0")] = devices.Ordered(torch.device("far:0"))
