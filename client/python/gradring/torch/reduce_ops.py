"""torch's reduce ops, as the native library has them."""

from __future__ import annotations

import torch
import torch.distributed as dist

from .._native import ReduceOp
from .frontend import TENSORS
from .tensors import Move

# By their numbers: torch's own are hashed and compared in C++, which takes longer.
_OPS = {int(theirs): {"op": ours} for theirs, ours in {
    dist.ReduceOp.SUM: ReduceOp.SUM,
    dist.ReduceOp.AVG: ReduceOp.AVERAGE,
    dist.ReduceOp.MIN: ReduceOp.MIN,
    dist.ReduceOp.MAX: ReduceOp.MAX,
    dist.ReduceOp.PRODUCT: ReduceOp.PRODUCT,
    dist.ReduceOp.BAND: ReduceOp.BAND,
    dist.ReduceOp.BOR: ReduceOp.BOR,
    dist.ReduceOp.BXOR: ReduceOp.BXOR,
}.items()}


def how_to_reduce(op) -> dict:
    """The arguments of a native call that say it."""
    kind = getattr(op, "op", op)
    if (known := _OPS.get(int(kind))) is not None:
        return known
    if kind == dist.ReduceOp.PREMUL_SUM:
        _, factor = op.__getstate__()  # before torch 2.13 it has no attribute of it
        return {"op": ReduceOp.SUM, "prescale": float(factor)}
    raise NotImplementedError(f"gradring: reduce op {op}")


class IntegerAverage(Move):
    """A sum that is divided once it is there."""

    def __init__(self, size, *where, **details):
        super().__init__(*where, op=ReduceOp.SUM, **details)
        self._size = size
        self.lands_elsewhere = True

    def bring_home(self):
        if self.taken is not None:
            dense = self.taken.dense
            if self.device is not None:
                dense.div_(self._size, rounding_mode="trunc")
            else:
                TENSORS.divide(dense, self._size)
        super().bring_home()


def reduction(size, collective, source, target, count, op, **details) -> Move:
    """One among so many ranks. An average of integers, which the daemon refuses to make, is rounded towards 0."""
    how = how_to_reduce(op)
    fractions = source.is_floating_point() or source.is_complex()
    if how["op"] == ReduceOp.AVERAGE and not fractions and source.dtype != torch.bool:
        return IntegerAverage(size, collective, source, target, count, **details)
    return Move(collective, source, target, count, **how, **details)
