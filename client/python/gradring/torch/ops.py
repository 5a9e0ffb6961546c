"""The collectives on torch's tensors, under Horovod's names: those that start an op, and those that work in place.

What is started returns a handle; synchronize() has its result. Tensors that are in use must not be written, and
outputs not read, before that. `name`: ops of one name and kind are matched across ranks with each other; None: by their
place in the program. `process_set`: the ranks that take part, which all must call it. Functions may be called from any
thread. They raise ValueError, TypeError or NotImplementedError for arguments that make no sense, and GradringError,
which is HorovodInternalError, if an op fails: then on all ranks, naming the one to blame.
"""

from __future__ import annotations

from typing import Sequence

import torch

from .. import exchange
from .. import ops as arrays
from .._native import Wire
from ..handles import Handle, MappedHandle
from ..handles import poll as poll
from ..handles import synchronize as synchronize
from ..process_sets import ProcessSet, global_process_set
from ..reduce_ops import Average, Sum, chosen
from .frontend import TENSORS

barrier = arrays.barrier
join = arrays.join


def first(results):
    return results[0]


# ---- allreduce ----
def start_allreduce(tensors: Sequence[torch.Tensor], outputs, op, name, prescale_factor, postscale_factor, process_set,
                    wire: Wire = Wire.DEFAULT) -> Handle:
    return exchange.allreduce(TENSORS, tensors, outputs, op=op, name=name, prescale=prescale_factor,
                              postscale=postscale_factor, wire=wire, process_set=process_set)


def allreduce_async(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op=None,
                    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                    process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what allreduce does. Result: a new tensor of this shape and type."""
    return MappedHandle(start_allreduce([tensor], None, chosen(op, average), name, prescale_factor, postscale_factor,
                                        process_set), first)


def allreduce_async_(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op=None,
                     prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                     process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what allreduce_ does. Result: the tensor."""
    return MappedHandle(start_allreduce([tensor], [tensor], chosen(op, average), name, prescale_factor,
                                        postscale_factor, process_set), first)


def allreduce_(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, op=None,
               prescale_factor: float = 1.0, postscale_factor: float = 1.0,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """allreduce in place: returns the tensor, which holds the tensors of all ranks in one. Not differentiable."""
    return allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], average: bool | None = None, name: str | None = None,
                            op=None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                            process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what grouped_allreduce does. Result: a list of new tensors."""
    return start_allreduce(list(tensors), None, chosen(op, average), name, prescale_factor, postscale_factor,
                           process_set)


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], average: bool | None = None, name: str | None = None,
                             op=None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                             process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what grouped_allreduce_ does. Result: a list of the tensors."""
    tensors = list(tensors)
    return start_allreduce(tensors, tensors, chosen(op, average), name, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_(tensors: Sequence[torch.Tensor], average: bool | None = None, name: str | None = None, op=None,
                       prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                       process_set: ProcessSet = global_process_set) -> list[torch.Tensor]:
    """allreduce_ of several tensors, which are handed over at once and are done together."""
    return grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set).wait()


class SparseHandle(MappedHandle):
    """May also be called, as Horovod's has to be."""

    def __call__(self) -> torch.Tensor:
        return self.wait()


def sparse_allreduce_async(tensor: torch.Tensor, name: str | None = None, op=Average,
                           process_set: ProcessSet = global_process_set) -> SparseHandle:
    """Starts the Sum or Average of sparse (COO) tensors of one shape, of which ranks may have as many values as they
    like: those of all ranks are put together, and not added up before somebody coalesces them. Result: a sparse
    tensor."""
    if op not in (Average, Sum):
        raise NotImplementedError(f"gradring: sparse_allreduce with {op}; it takes Average or Sum")
    # Rows are what allgather puts together, and so values have to be, of which there is one an index.
    parts = [tensor._indices().t().contiguous(), tensor._values()]
    shape, size = tensor.shape, process_set.size()

    def whole(gathered):
        indices, values = gathered
        if op == Average:
            values = values / size if values.is_floating_point() else values.div(size, rounding_mode="trunc")
        return torch.sparse_coo_tensor(indices.t(), values, shape, check_invariants=True)
    return SparseHandle(exchange.allgather(TENSORS, parts, name=f"{name}.sparse" if name else None,
                                           process_set=process_set, whole=shape), whole)


# ---- allgather ----
def allgather_async(tensor: torch.Tensor, name: str | None = None,
                    process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what allgather does."""
    return MappedHandle(exchange.allgather(TENSORS, [tensor], name=name, process_set=process_set), first)


def grouped_allgather_async(tensors: Sequence[torch.Tensor], name: str | None = None,
                            process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what grouped_allgather does."""
    return exchange.allgather(TENSORS, list(tensors), name=name, process_set=process_set)


# ---- broadcast ----
def broadcast_async(tensor: torch.Tensor, root_rank: int, name: str | None = None,
                    process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what broadcast does."""
    return exchange.broadcast(TENSORS, tensor, root_rank=root_rank, name=name, process_set=process_set)


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str | None = None,
                     process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what broadcast_ does."""
    return exchange.broadcast(TENSORS, tensor, tensor, root_rank=root_rank, name=name, process_set=process_set)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """broadcast in place: returns the tensor, which holds the root's. Not differentiable."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


# ---- alltoall ----
def checked_splits(splits) -> list[int] | None:
    """Raises ValueError for anything but whole numbers."""
    if splits is None:
        return None
    splits = torch.as_tensor(splits)
    if splits.is_floating_point() or splits.is_complex() or splits.dim() != 1:
        raise ValueError(f"gradring: alltoall takes splits of one dimension, of integers, and these are "
                         f"{tuple(splits.shape)} of {splits.dtype}")
    return splits.tolist()


def with_received_splits(splits):
    """What makes the result of alltoall: rows, and how many each rank had, a tensor of the type of `splits`."""
    dtype = splits.dtype if isinstance(splits, torch.Tensor) else torch.int32
    return lambda told: (told[0], torch.tensor(told[1], dtype=dtype, device="cpu"))


def alltoall_async(tensor: torch.Tensor, splits=None, name: str | None = None,
                   process_set: ProcessSet = global_process_set) -> Handle:
    """Starts what alltoall does. Result: rows, and how many each rank had, also where no splits are given."""
    return MappedHandle(exchange.alltoall(TENSORS, tensor, checked_splits(splits), name=name, process_set=process_set),
                        with_received_splits(splits))


# ---- reducescatter ----
def start_reducescatter(tensors: Sequence[torch.Tensor], op, name, prescale_factor, postscale_factor, process_set,
                        wire: Wire = Wire.DEFAULT) -> Handle:
    return exchange.reducescatter(TENSORS, tensors, op=op, name=name, prescale=prescale_factor,
                                  postscale=postscale_factor, wire=wire, process_set=process_set)


def reducescatter_async(tensor: torch.Tensor, name: str | None = None, op=Average,
                        process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                        postscale_factor: float = 1.0) -> Handle:
    """Starts what reducescatter does."""
    return MappedHandle(start_reducescatter([tensor], op, name, prescale_factor, postscale_factor, process_set), first)


def grouped_reducescatter_async(tensors: Sequence[torch.Tensor], name: str | None = None, op=Average,
                                process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                                postscale_factor: float = 1.0) -> Handle:
    """Starts what grouped_reducescatter does."""
    return start_reducescatter(list(tensors), op, name, prescale_factor, postscale_factor, process_set)
