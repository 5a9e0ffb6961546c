"""The options and the state of optimizers, where a state is loaded."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

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


def load_as_it_is(optimizer: torch.optim.Optimizer, state: dict) -> None:
    """load_state_dict(), by which torch makes what a parameter's state has of tensors, but for `step`, of the parameter's
    type: also float32 weights kept beside bfloat16 ones, counters and masks. Here they stay of the type that they have."""
    with same_groups(optimizer):
        optimizer.load_state_dict(state)
    _typed(optimizer.state_dict().get("state"), state.get("state"))


def _typed(loaded: Any, given: Any) -> Any:
    """What was loaded, with the tensors that were given where it has others of another type. Dicts are written in place:
    a state_dict() has those of the optimizer itself."""
    if isinstance(loaded, torch.Tensor) and isinstance(given, torch.Tensor):
        return loaded if loaded.dtype == given.dtype else given.to(loaded.device)
    if isinstance(loaded, dict) and isinstance(given, dict):
        for key in loaded.keys() & given.keys():
            loaded[key] = _typed(loaded[key], given[key])
    elif type(loaded) in (list, tuple) and type(given) is type(loaded) and len(loaded) == len(given):
        return type(loaded)(_typed(one, other) for one, other in zip(loaded, given, strict=True))
    return loaded
