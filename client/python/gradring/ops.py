"""The collectives on arrays: NumPy's, and whatever speaks DLPack or the buffer protocol.

Results are new arrays of the kind that was given, unless `out` names where they belong. Arrays made by empty() lie in
memory that is shared with the daemon: they are neither copied in nor out. All functions may be called from any thread,
and raise GradringError if an op fails, naming the rank, node and process to blame, and ValueError or TypeError for
arguments that make no sense.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Sequence

import numpy as np

from . import exchange
from ._native import Wire
from .arrays import ARRAYS, DTYPES, like
from .handles import Handle, MappedHandle
from .process_sets import ProcessSet, global_process_set
from .reduce_ops import chosen
from .world import world


def empty(shape: int | Sequence[int], dtype: Any = np.float32) -> np.ndarray:
    """A NumPy array in memory shared with the daemon, with anything in it. The memory lives as long as the array."""
    dtype = np.dtype(dtype)
    if dtype.name not in DTYPES:
        raise TypeError(f"gradring cannot move {dtype}")
    shape = tuple(map(operator.index, shape if np.iterable(shape) else (shape,)))
    if min(shape, default=0) < 0:
        raise ValueError(f"gradring: an array of shape {shape}")
    count = math.prod(shape)
    memory = world().job.allocate(max(count * dtype.itemsize, 1))
    return np.frombuffer(memory, dtype, count).reshape(shape)


def allreduce_async(array, average: bool | None = None, name: str | None = None, op=None, prescale_factor: float = 1.0,
                    postscale_factor: float = 1.0, *, out: np.ndarray | None = None, wire: Wire | str = Wire.DEFAULT,
                    priority: int = 0, process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what allreduce does; synchronize() has its result."""
    handle = exchange.allreduce(ARRAYS, [array], None if out is None else [out], op=chosen(op, average), name=name,
                                prescale=prescale_factor, postscale=postscale_factor, wire=wire, priority=priority,
                                process_set=process_set)
    return MappedHandle(handle, lambda results: _given_back(results[0], array, out))


def allreduce(array, average: bool | None = None, name: str | None = None, op=None, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0, *, out: np.ndarray | None = None, wire: Wire | str = Wire.DEFAULT,
              priority: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """The arrays of all ranks in one, of the same shape; `op`: Average (the default), Sum, Min, Max, Product, Adasum.

    Args:
        name: matches it with the others' op of that name; None: by its place in the program.
        prescale_factor, postscale_factor: multiply what goes in, and what comes out; of floats not 0.
        out: where the result goes, such as the array itself.
        wire: as what float32 travels between nodes: native, fp16, bf16 or int8.
        priority: of ops under way at once, the highest goes first.
    """
    return allreduce_async(array, average, name, op, prescale_factor, postscale_factor, out=out, wire=wire,
                           priority=priority, process_set=process_set).wait()


def grouped_allreduce_async(arrays: Sequence, average: bool | None = None, name: str | None = None, op=None,
                            prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
                            process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what grouped_allreduce does."""
    handle = exchange.allreduce(ARRAYS, arrays, op=chosen(op, average), name=name, prescale=prescale_factor,
                                postscale=postscale_factor, process_set=process_set)
    return MappedHandle(handle, lambda results: _all_like(results, arrays))


def grouped_allreduce(arrays: Sequence, average: bool | None = None, name: str | None = None, op=None,
                      prescale_factor: float = 1.0, postscale_factor: float = 1.0, *,
                      process_set: ProcessSet = global_process_set) -> list:
    """allreduce of several arrays, which are handed over at once, and are done together."""
    return grouped_allreduce_async(arrays, average, name, op, prescale_factor, postscale_factor,
                                   process_set=process_set).wait()


def allgather_async(array, name: str | None = None, *, process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what allgather does."""
    return MappedHandle(exchange.allgather(ARRAYS, [array], name=name, process_set=process_set),
                        lambda results: like(results[0], array))


def allgather(array, name: str | None = None, *, process_set: ProcessSet = global_process_set) -> Any:
    """The rows of all ranks, one below the other in the order of ranks; they may have different numbers of them."""
    return like(exchange.allgather(ARRAYS, [array], name=name, process_set=process_set, now=True).wait()[0], array)


def grouped_allgather_async(arrays: Sequence, name: str | None = None, *,
                            process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what grouped_allgather does."""
    return MappedHandle(exchange.allgather(ARRAYS, arrays, name=name, process_set=process_set),
                        lambda results: _all_like(results, arrays))


def grouped_allgather(arrays: Sequence, name: str | None = None, *,
                      process_set: ProcessSet = global_process_set) -> list:
    """allgather of several arrays at once."""
    return _all_like(exchange.allgather(ARRAYS, arrays, name=name, process_set=process_set, now=True).wait(), arrays)


def broadcast_async(array, root_rank: int, name: str | None = None, *, out: np.ndarray | None = None,
                    process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what broadcast does."""
    handle = exchange.broadcast(ARRAYS, array, out, root_rank=root_rank, name=name, process_set=process_set)
    return MappedHandle(handle, lambda result: _given_back(result, array, out))


def broadcast(array, root_rank: int, name: str | None = None, *, out: np.ndarray | None = None,
              process_set: ProcessSet = global_process_set) -> Any:
    """The root's array, on all ranks; theirs must have its shape and type."""
    return broadcast_async(array, root_rank, name, out=out, process_set=process_set).wait()


def alltoall_async(array, splits: Sequence[int] | np.ndarray | None = None, name: str | None = None, *,
                   process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what alltoall does."""
    return MappedHandle(exchange.alltoall(ARRAYS, array, splits, name=name, process_set=process_set),
                        lambda result: _of_alltoall(result, array, splits))


def alltoall(array, splits: Sequence[int] | np.ndarray | None = None, name: str | None = None, *,
             process_set: ProcessSet = global_process_set) -> Any:
    """The rows that the others have for this rank, in the order of ranks. `splits[r]`: how many of its rows are rank
    r's; then the result is (rows, how many each rank had)."""
    result = exchange.alltoall(ARRAYS, array, splits, name=name, process_set=process_set, now=True).wait()
    return _of_alltoall(result, array, splits)


def reducescatter_async(array, op=None, name: str | None = None, prescale_factor: float = 1.0,
                        postscale_factor: float = 1.0, *, process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what reducescatter does."""
    handle = exchange.reducescatter(ARRAYS, [array], op=chosen(op, None), name=name, prescale=prescale_factor,
                                    postscale=postscale_factor, process_set=process_set)
    return MappedHandle(handle, lambda results: like(results[0], array))


def reducescatter(array, op=None, name: str | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                  *, process_set: ProcessSet = global_process_set) -> Any:
    """This rank's rows of the sum, or Average; where rows cannot be shared out evenly the first ranks have one more."""
    return reducescatter_async(array, op, name, prescale_factor, postscale_factor, process_set=process_set).wait()


def grouped_reducescatter_async(arrays: Sequence, op=None, name: str | None = None, prescale_factor: float = 1.0,
                                postscale_factor: float = 1.0, *,
                                process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what grouped_reducescatter does."""
    handle = exchange.reducescatter(ARRAYS, arrays, op=chosen(op, None), name=name, prescale=prescale_factor,
                                    postscale=postscale_factor, process_set=process_set)
    return MappedHandle(handle, lambda results: _all_like(results, arrays))


def grouped_reducescatter(arrays: Sequence, op=None, name: str | None = None, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0, *, process_set: ProcessSet = global_process_set) -> list:
    """reducescatter of several arrays at once."""
    return grouped_reducescatter_async(arrays, op, name, prescale_factor, postscale_factor,
                                       process_set=process_set).wait()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks have called it."""
    exchange.barrier(process_set=process_set).wait()


def join(device: int = -1) -> int:
    """This rank has no more data: until all ranks have called this, it takes part in their ops with values that change
    nothing. Returns the rank that was last. `device` is Horovod's, and means nothing here."""
    last = world().standing.numbers.index(world().job.join())
    world().names.start_anew()  # this rank has not counted what the others did meanwhile
    return last


def _given_back(result, given, out):
    return out if out is not None else like(result, given)


def _all_like(results, arrays):
    return [like(result, array) for result, array in zip(results, arrays, strict=True)]


def _of_alltoall(result, array, splits):
    rows, received = result
    if splits is None:
        return like(rows, array)
    return like(rows, array), np.asarray(received, np.int32)
