"""What other threads capture into CUDA graphs meanwhile is not ours to end."""

import contextlib
import ctypes
import functools

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


@functools.cache
def _exchange():
    """The driver's function, as whoever has a GPU has loaded it. None: it is older than CUDA 10.1."""
    return getattr(ctypes.CDLL("libcuda.so.1"), "cuThreadExchangeStreamCaptureMode", None)


@contextlib.contextmanager
def aside():
    """While a thread captures, as in `torch.cuda.graph`, CUDA refuses to wait for an event or a stream, or to look at one,
    in all other threads, and the capture is lost. Not what is done inside, in the calling thread."""
    exchange, mode = _exchange(), ctypes.c_int(_RELAXED)
    if exchange is None:
        yield
        return
    exchange(ctypes.byref(mode))  # and has what it was
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))
