"""torch's reduce ops, as the native library has them."""

from __future__ import annotations

import torch
import torch.distributed as dist

from .._native import ReduceOp
from .devices import device_of
from .frontend import TENSORS
from .tensors import Move, check_target

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
    """A sum that is divided once it is there. On the host it is made in 64 bits, as those of small types may not have room
    for it."""

    def __init__(self, size, collective, source, target, count, **details):
        self._size = size
        self._home = None
        known = source if source is not None else target
        if known.element_size() < 8 and device_of(known) is None:
            if target is not None:
                check_target(target)
            self._home = target
            source, target = _in_64_bits(source, target)
        super().__init__(collective, source, target, count, op=ReduceOp.SUM, **details)
        self.lands_elsewhere = True

    def bring_home(self):
        if self.taken is not None:
            dense = self.taken.dense
            if self.device is not None:
                dense.div_(self._size, rounding_mode="trunc")
            else:
                TENSORS.divide(dense, self._size, dense)
        super().bring_home()
        if self._home is not None:
            self._home.detach().copy_(self.taken.tensor)


def _in_64_bits(source, target):
    wide = source.to(torch.int64) if source is not None else None
    if target is source:
        return wide, wide
    return wide, torch.empty(target.shape, dtype=torch.int64, device="cpu") if target is not None else None


def reduction(size, collective, source, target, count, op, **details) -> Move:
    """One among so many ranks. An average of integers, which the daemon refuses to make, is rounded towards 0."""
    how = how_to_reduce(op)
    fractions = source.is_floating_point() or source.is_complex()
    if how["op"] == ReduceOp.AVERAGE and not fractions and source.dtype != torch.bool:
        return IntegerAverage(size, collective, source, target, count, **details)
    return Move(collective, source, target, count, **how, **details)
