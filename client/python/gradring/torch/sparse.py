"""all_reduce of sparse tensors: indices and values of all ranks, put together."""

from __future__ import annotations

import torch
import torch.distributed as dist

from .._native import Call, Collective
from .tensors import Place


def allreduce_sparse(group, tensor, opts):
    """The sum, in place, as Gloo does it. Ranks may have as many values as they like."""
    if opts.reduceOp != dist.ReduceOp.SUM:
        raise NotImplementedError(f"gradring: all_reduce of sparse tensors with {opts.reduceOp}")
    mine = tensor.coalesce()
    indices, values = mine.indices().t().contiguous(), mine.values().contiguous()
    rows = group._exchange([indices.shape[0]])
    gathered = []
    calls = []
    for part in (indices, values):
        width = _width(part)
        whole = torch.empty((sum(rows), *part.shape[1:]), dtype=part.dtype)
        source, target = Place(part), Place(whole)
        calls.append(Call(Collective.ALLGATHER, dtype=source.dtype, input=source.address, input_bytes=source.nbytes,
                          output=target.address, output_bytes=target.nbytes, counts=[count * width for count in rows]))
        gathered.append(whole)

    def finish():
        total = torch.sparse_coo_tensor(gathered[0].t(), gathered[1], tensor.shape).coalesce()
        tensor.copy_(total)
    return group._start("all_reduce of a sparse tensor", calls, [tensor], finish, [indices, values, gathered])


def _width(part):
    width = 1
    for length in part.shape[1:]:
        width *= length
    return width
