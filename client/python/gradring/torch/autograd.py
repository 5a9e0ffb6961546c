"""The collectives that wait, through which gradients flow.

A gradient is exchanged as Horovod has it: an average stays one, a sum is a sum, and what was put together is averaged
over the ranks. Arguments and errors: see ops.py. All ranks must go backward through the same ops in the same order.
"""

from __future__ import annotations

from typing import Sequence

import torch
from torch.autograd import Function

from .. import exchange
from ..process_sets import ProcessSet, global_process_set
from ..reduce_ops import Average, Sum, chosen
from ..world import rank
from .compression import Compression, Packed
from .frontend import TENSORS
from .ops import checked_splits, start_allreduce, start_reducescatter, with_received_splits


# ---- allreduce ----
class _Allreduce(Function):
    @staticmethod
    def forward(ctx, how, *tensors):
        ctx.how = how
        return tuple(start_allreduce(tensors, None, **how).wait())

    @staticmethod
    def backward(ctx, *gradients):
        return None, *_Allreduce.apply(ctx.how | {"name": None}, *gradients)


def _reduced(function, tensors, compression, **how) -> list[torch.Tensor]:
    packed = Packed(compression, tensors)
    return packed.unpacked(function.apply(how | {"wire": packed.wire}, *packed.tensors))


def allreduce(tensor: torch.Tensor, average: bool | None = None, name: str | None = None, compression=Compression.none,
              op=None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The tensors of all ranks in one, a new one of the same shape and type.

    Args:
        average: what there was before `op`: True for Average, False for Sum.
        compression: in what it is exchanged, see Compression.
        op: Average (the default), Sum, Min, Max, Product, Adasum.
        prescale_factor, postscale_factor: multiply what goes in, and what comes out.
    """
    return grouped_allreduce([tensor], average, name, compression, op, prescale_factor, postscale_factor,
                             process_set)[0]


def grouped_allreduce(tensors: Sequence[torch.Tensor], average: bool | None = None, name: str | None = None,
                      compression=Compression.none, op=None, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set) -> list[torch.Tensor]:
    """allreduce of several tensors, which are handed over at once and are done together."""
    return _reduced(_Allreduce, tensors, compression, op=chosen(op, average), name=name,
                    prescale_factor=prescale_factor, postscale_factor=postscale_factor, process_set=process_set)


# ---- allgather ----
class _Allgather(Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        ctx.process_set = process_set
        ctx.rows = [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
        return tuple(exchange.allgather(TENSORS, tensors, name=name, process_set=process_set, now=True).wait())

    @staticmethod
    def backward(ctx, *gradients):
        means = grouped_allreduce(gradients, op=Average, process_set=ctx.process_set)
        rows = exchange.allgather(TENSORS, [torch.tensor([ctx.rows], device="cpu")], process_set=ctx.process_set, equal=True,
                                  now=True).wait()[0]
        before = rows[:ctx.process_set.rank()].sum(0).tolist()
        return None, None, *[mean.narrow(0, start, length)
                             for mean, start, length in zip(means, before, ctx.rows, strict=True)]


def allgather(tensor: torch.Tensor, name: str | None = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The rows of all ranks, one below the other in the order of ranks; they may have different numbers of them."""
    return _Allgather.apply(name, process_set, tensor)[0]


def grouped_allgather(tensors: Sequence[torch.Tensor], name: str | None = None,
                      process_set: ProcessSet = global_process_set) -> list[torch.Tensor]:
    """allgather of several tensors at once."""
    return list(_Allgather.apply(name, process_set, *tensors))


# ---- broadcast ----
class _Broadcast(Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return exchange.broadcast(TENSORS, tensor, root_rank=root_rank, name=name, process_set=process_set).wait()

    @staticmethod
    def backward(ctx, gradient):
        mean = allreduce(gradient, op=Average, process_set=ctx.process_set)
        return mean if rank() == ctx.root_rank else torch.zeros_like(mean), None, None, None


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The root's tensor, on all ranks; theirs must have its shape and type. `root_rank`: of the whole job, also where
    the set is not all of it."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


# ---- alltoall ----
class _Alltoall(Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        handle = exchange.alltoall(TENSORS, tensor, checked_splits(splits), name=name, process_set=process_set,
                                   now=True)
        rows, received = with_received_splits(splits)(handle.wait())
        ctx.received, ctx.process_set = received, process_set
        ctx.mark_non_differentiable(received)
        return rows, received

    @staticmethod
    def backward(ctx, gradient, _):
        return _Alltoall.apply(gradient, ctx.received, None, ctx.process_set)[0], None, None, None


def alltoall(tensor: torch.Tensor, splits=None, name: str | None = None,
             process_set: ProcessSet = global_process_set) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """The rows that the others have for this rank, in the order of ranks. `splits[r]`: how many of this rank's rows are
    rank r's; then the result is (rows, how many each rank had)."""
    rows, received = _Alltoall.apply(tensor, splits, name, process_set)
    return rows if splits is None else (rows, received)


# ---- reducescatter ----
class _Reducescatter(Function):
    @staticmethod
    def forward(ctx, how, *tensors):
        ctx.how = how
        return tuple(start_reducescatter(tensors, **how).wait())

    @staticmethod
    def backward(ctx, *gradients):
        process_set = ctx.how["process_set"]
        factor = ctx.how["prescale_factor"] * ctx.how["postscale_factor"]
        if ctx.how["op"] == Sum:
            factor *= process_set.size()
        return None, *grouped_allgather([gradient * factor if factor != 1.0 else gradient for gradient in gradients],
                                        process_set=process_set)


def reducescatter(tensor: torch.Tensor, name: str | None = None, compression=Compression.none, op=Average,
                  process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0) -> torch.Tensor:
    """This rank's rows of the Average or Sum; where rows cannot be shared out evenly the first ranks have one more."""
    return grouped_reducescatter([tensor], name, compression, op, process_set, prescale_factor, postscale_factor)[0]


def grouped_reducescatter(tensors: Sequence[torch.Tensor], name: str | None = None, compression=Compression.none,
                          op=Average, process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> list[torch.Tensor]:
    """reducescatter of several tensors at once."""
    return _reduced(_Reducescatter, tensors, compression, op=op, name=name, prescale_factor=prescale_factor,
                    postscale_factor=postscale_factor, process_set=process_set)
