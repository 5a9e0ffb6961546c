"""NumPy arrays, and whatever speaks DLPack or the buffer protocol, as tensors to exchange."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ._native import Dtype
from .places import Place

DTYPES = {
    "float32": Dtype.FLOAT32,
    "float64": Dtype.FLOAT64,
    "float16": Dtype.FLOAT16,
    "bfloat16": Dtype.BFLOAT16,
    "int8": Dtype.INT8,
    "int16": Dtype.INT16,
    "int32": Dtype.INT32,
    "int64": Dtype.INT64,
    "uint8": Dtype.UINT8,
    "uint16": Dtype.UINT16,
    "uint32": Dtype.UINT32,
    "uint64": Dtype.UINT64,
    "bool": Dtype.BOOL,
    "float8_e4m3fn": Dtype.FLOAT8_E4M3,
    "float8_e5m2": Dtype.FLOAT8_E5M2,
}


NO_NUMBERS = ("string", "resource", "variant")  # of TensorFlow, which ends the process where DLPack is asked for
VALUES = (bool, int, float, list, tuple, np.generic)  # are copied: they have no memory of their own that could be written


class Arrays:
    """The Frontend of numpy.ndarray."""

    def dense(self, tensor: Any, writable: bool = False) -> np.ndarray:
        array = as_array(tensor)
        if writable and (isinstance(tensor, VALUES) or not array.flags.writeable):
            raise TypeError(f"gradring: the output is a {type(tensor).__name__} that cannot be written")
        if writable and array.size and not np.may_share_memory(array, as_array(tensor)):
            raise TypeError(f"gradring: the output is a {type(tensor).__name__}, which gives nothing but copies of its memory")
        if array.flags.c_contiguous and array.dtype.isnative:
            return array
        return np.array(array, _native(array.dtype), order="C")

    def place(self, dense: np.ndarray) -> Place:
        try:
            dtype = DTYPES[dense.dtype.name]
        except KeyError:
            raise TypeError(f"gradring cannot move {dense.dtype}") from None
        return Place(dense.ctypes.data, dense.nbytes, dense.size, dtype, dense.shape, dense)

    def empty(self, shape, like: Any) -> np.ndarray:
        return np.empty(shape, _native(as_array(like).dtype))

    def copy(self, source, target) -> None:
        np.copyto(as_array(target), source)

    def result(self, dense, like):
        return dense

    def scaled(self, dense, factor):
        return np.asarray(dense.astype(np.float64) * factor).astype(dense.dtype)  # an array also of one without dimensions

    def widened(self, dense):
        return np.asarray(dense.astype(np.int64))  # an array also of one without dimensions

    def divide(self, sums, divisor, dense) -> None:
        quotient = sums // divisor  # rounded down
        quotient += (sums < 0) & (sums % divisor != 0)
        dense[...] = quotient


def _native(dtype: np.dtype) -> np.dtype:
    """In this machine's order of bytes, which the daemon computes in."""
    return dtype.newbyteorder("=")


ARRAYS = Arrays()


def as_array(tensor: Any) -> np.ndarray:
    """A view where that is possible: of arrays, of what has DLPack on the CPU, of buffers. Raises TypeError."""
    if isinstance(tensor, np.ma.MaskedArray):
        raise TypeError("gradring moves no masks: give it array.filled(...), and the mask as an array of its own")
    if isinstance(tensor, np.ndarray):
        return tensor
    if isinstance(tensor, VALUES):
        return np.asarray(tensor)
    if hasattr(tensor, "__dlpack__"):
        if (name := getattr(getattr(tensor, "dtype", None), "name", None)) in NO_NUMBERS:
            raise TypeError(f"gradring cannot move {name}")
        try:
            return np.from_dlpack(tensor)
        except Exception:
            pass  # types that DLPack, or NumPy's part of it, does not have, such as bfloat16: each library raises its own error
    if hasattr(tensor, "__array__"):
        return np.asarray(tensor.__array__())  # TensorFlow's of one bfloat16 without dimensions is a scalar
    try:
        view = memoryview(tensor)
    except TypeError:
        raise TypeError(f"gradring: a {type(tensor).__name__} is no array: it has no DLPack and no buffer") from None
    return np.asarray(view)


def like(result: np.ndarray, given: Any) -> Any:
    """A result as the kind of array that was given, where its library takes DLPack; else a NumPy array."""
    if isinstance(given, (np.ndarray, *VALUES)) or not hasattr(given, "__dlpack__"):
        return result
    if hasattr(given, "__array_namespace__"):
        library = given.__array_namespace__()
    else:
        library = sys.modules.get(type(given).__module__.partition(".")[0])
    try:
        return library.from_dlpack(result)
    except (AttributeError, BufferError, RuntimeError, TypeError):
        return library.asarray(result) if hasattr(library, "asarray") else result
