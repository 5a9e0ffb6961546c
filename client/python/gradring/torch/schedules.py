"""Learning rates for batches that grow with the number of ranks, as functions for torch's LambdaLR."""

from __future__ import annotations

from typing import Callable

from ..world import is_initialized, size as world_size


def warmup(steps: int, size: float | None = None, after: Callable[[int], float] | None = None
           ) -> Callable[[int], float]:
    """The factor by which the learning rate of one rank is multiplied: from 1 to `size` within `steps`, and then stays,
    or goes on as `size * after(step - steps)`.

        scheduler = LambdaLR(optimizer, warmup(5 * len(loader)))   # scheduler.step() after each optimizer.step()

    Args:
        size: None: the number of ranks that there are now.
        after: such as `lambda step: 0.1 ** (step // 1000)`.
    Raises:
        ValueError: for negative steps; or no size, outside of a job.
    """
    if steps < 0:
        raise ValueError(f"gradring: a warm-up of {steps} steps")
    if size is None:
        size = _ranks()

    def factor(step: int) -> float:
        if step < steps:
            return 1 + (size - 1) * step / steps
        return size * (after(step - steps) if after is not None else 1.0)
    return factor


def _ranks() -> int:
    import torch.distributed as dist

    if dist.is_initialized():
        return dist.get_world_size()
    if is_initialized():
        return world_size()
    raise ValueError("gradring: warmup() outside of a job does not know the number of ranks: call it after "
                     "init_process_group() or init(), or give size")
