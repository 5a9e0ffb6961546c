"""Figures of all ranks in one."""

from __future__ import annotations

from typing import Mapping

import torch.distributed as dist

from .. import objects
from ..world import is_initialized


def average_metrics(metrics: Mapping[str, float], weight: float = 1.0, group: dist.ProcessGroup | None = None
                    ) -> dict[str, float]:
    """The means over all ranks, the same numbers on each of them; all call it, with the same keys.

    Not for every step: it exchanges Python objects.

    Args:
        metrics: numbers, or tensors of one element.
        weight: by how much this rank counts, such as its number of samples.
        group: of torch.distributed; None: its default group, or where there is none the job of gradring.init().
    Raises:
        ValueError: on all ranks, where keys differ or all weights are 0; or outside of a job.
    """
    mine = ({name: float(value) for name, value in metrics.items()}, float(weight))
    told = _of_all(mine, group)
    names = list(told[0][0])
    for rank, (figures, _) in enumerate(told):
        if set(figures) != set(names):
            raise ValueError(f"gradring: metrics differ: rank 0 has {sorted(names)}, rank {rank} {sorted(figures)}")
    total = sum(weight for _, weight in told)
    if total == 0:
        raise ValueError("gradring: metrics of ranks whose weights are all 0")
    # A rank without samples has no mean of its own.
    return {name: sum(figures[name] * weight for figures, weight in told if weight) / total for name in names}


def _of_all(mine, group) -> list:
    if dist.is_initialized():
        told: list = [None] * dist.get_world_size(group)
        dist.all_gather_object(told, mine, group=group)
        return told
    if is_initialized():
        return objects.allgather_object(mine, "metrics")
    raise ValueError("gradring: average_metrics() outside of a job: call init_process_group() or init() before")
