"""Elastic training of PyTorch's models: gradring.elastic with what torch keeps its state in."""

from __future__ import annotations

from typing import Any

import torch

from ..elastic import HorovodInternalError, HostsUpdatedInterrupt, ObjectState, State, run
from ..elastic.parts import Keeper, PartsState
from ..objects import allgather_object
from ..world import world
from .options import load_as_it_is
from .sampler import ElasticSampler

__all__ = ["ElasticSampler", "HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "TorchState",
           "run"]


class TorchState(PartsState):
    """Models, optimizers, samplers, and anything that can be pickled.

        state = TorchState(model, optimizer, sampler=sampler, epoch=0)

    Whatever has a state_dict() is kept, handed over and loaded by that; an ElasticSampler takes over what any rank has
    processed. Everything else is an attribute as in ObjectState.
    """

    def __init__(self, model: torch.nn.Module | None = None, optimizer: torch.optim.Optimizer | None = None,
                 **values: Any):
        given = {"model": model, "optimizer": optimizer, **values}
        keepers = {name: keeper for name, part in given.items() if (keeper := _keeper_of(part)) is not None}
        super().__init__(keepers, **{name: value for name, value in given.items() if name not in keepers})

    def _keeper_of(self, name, part):
        return _keeper_of(part)


class _SamplerKeeper(Keeper):
    """What one rank has processed, all have: once they are in sync."""

    alike = False

    def sync(self):
        self.part.load_state_dict(_together(allgather_object(self.part.state_dict()), world().oldest))

    def reset(self):
        self.part.reset()


def _together(states: list[dict], oldest: int) -> dict:
    """The epoch of the rank that has the job's state, and all that was processed of it."""
    epoch = states[oldest]["epoch"]
    processed = set().union(*(one["processed_indices"] for one in states if one["epoch"] == epoch))
    return {"epoch": epoch, "processed_indices": processed}


def _keeper_of(part) -> Keeper | None:
    if not hasattr(part, "state_dict"):
        return None
    kind = _SamplerKeeper if isinstance(part, ElasticSampler) else Keeper
    return kind(part, lambda one: one.state_dict(), _load)


def _load(part, state):
    if isinstance(part, torch.optim.Optimizer):
        load_as_it_is(part, state)
    else:
        part.load_state_dict(state)
