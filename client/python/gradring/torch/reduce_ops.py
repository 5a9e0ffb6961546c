"""torch's reduce ops, as the native library has them."""

from __future__ import annotations

import torch.distributed as dist

from .._native import ReduceOp

_OPS = {
    dist.ReduceOp.SUM: {"op": ReduceOp.SUM},
    dist.ReduceOp.AVG: {"op": ReduceOp.AVERAGE},
    dist.ReduceOp.MIN: {"op": ReduceOp.MIN},
    dist.ReduceOp.MAX: {"op": ReduceOp.MAX},
    dist.ReduceOp.PRODUCT: {"op": ReduceOp.PRODUCT},
    dist.ReduceOp.BAND: {"op": ReduceOp.BAND},
    dist.ReduceOp.BOR: {"op": ReduceOp.BOR},
    dist.ReduceOp.BXOR: {"op": ReduceOp.BXOR},
}


def how_to_reduce(op) -> dict:
    """The arguments of a native call that say it."""
    kind = getattr(op, "op", op)
    if kind == dist.ReduceOp.PREMUL_SUM:
        _, factor = op.__getstate__()  # before torch 2.13 it has no attribute of it
        return {"op": ReduceOp.SUM, "prescale": float(factor)}
    for known, details in _OPS.items():
        if kind == known:
            return details
    raise NotImplementedError(f"gradring: reduce op {op}")
