"""The options of optimizers, such as the learning rate, while a state is loaded."""

from __future__ import annotations

import contextlib
from typing import Iterator

import torch


@contextlib.contextmanager
def same_groups(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Around load_state_dict(), by which torch gives the optimizer other dicts for its groups: lets it keep those that it
    has, with what was loaded. Learning rate schedules write into them by way of the optimizer that they were made for,
    which is another one where DistributedOptimizer has been made of it since."""
    kept = optimizer.param_groups
    groups = list(kept)
    yield
    for group, loaded in zip(groups, optimizer.param_groups, strict=True):
        group.update(loaded)
    kept[:] = groups
    if optimizer.param_groups is not kept:
        optimizer.param_groups = kept
