"""all_reduce of sparse tensors: indices and values of all ranks, put together."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist

from .._native import Collective
from .devices import device_of
from .tensors import Move


def allreduce_sparse(group, tensor, opts):
    """The sum, in place, as Gloo does it. Ranks may have as many values as they like."""
    if opts.reduceOp != dist.ReduceOp.SUM:
        raise NotImplementedError("gradring: sparse tensors are summed by all_reduce, and nothing else: give it ReduceOp.SUM")
    mine = tensor.detach().coalesce()
    indices, values = mine.indices().t().contiguous(), mine.values().contiguous()
    device = device_of(tensor)
    told = group.exchange([indices.shape[0], tensor.sparse_dim(), *tensor.shape])
    rows, forms = told[::2 + tensor.dim()], [told[i + 1:i + 2 + tensor.dim()] for i in range(0, len(told), 2 + tensor.dim())]
    for rank, form in enumerate(forms):  # or indices of one would be others' numbers, or lie outside
        if form != forms[0]:
            raise ValueError(f"gradring: all_reduce of sparse tensors that differ: rank 0 has one of {_in_words(*forms[0])}, rank "
                             f"{rank} one of {_in_words(*form)}")
    gathered = []
    moves = []
    for part in (indices, values):
        width = math.prod(part.shape[1:])
        whole = torch.empty((sum(rows), *part.shape[1:]), dtype=part.dtype, device="cpu")
        moves.append(Move(Collective.ALLGATHER, part, whole, 0, counts=[count * width for count in rows]))
        gathered.append(whole)

    def finish():
        total = torch.sparse_coo_tensor(gathered[0].t(), gathered[1], tensor.shape).coalesce()
        with torch.no_grad():  # it may be a parameter
            tensor.copy_(total.to(tensor.device))
        if device is not None:  # this may be any thread, whose stream nobody else waits for
            device.wait_for(device.mark())
    return group.start("all_reduce of a sparse tensor", moves, [tensor], finish)


def _in_words(sparse, *shape):
    return f"shape {shape} with {sparse} sparse dimensions"
