"""Hooks of torch's that start further ops when one ends. Beside ops of another thread each rank would start them in an order of
its own, and ops that are matched by their order would be summed with others."""

from __future__ import annotations

import sys

_FOLDER = "torch.distributed.algorithms.ddp_comm_hooks"
_HOOKS = frozenset(f"{_FOLDER}.{name}" for name in ("powerSGD_hook", "quantization_hooks", "ddp_zero_hook"))
_DEPTH = 6  # frames: such a hook may have another one start its first op


def is_chained() -> bool:
    """Whether what the caller is asked for is asked by one of them. Its callbacks have to run in the thread that submits all others,
    which they do where the op has ended before it hears of the future."""
    frame = sys._getframe(1)
    for _ in range(_DEPTH):
        if (frame := frame.f_back) is None:
            return False
        if frame.f_globals.get("__name__") in _HOOKS:
            return True
    return False
