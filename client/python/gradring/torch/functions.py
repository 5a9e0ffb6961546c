"""What a model and its optimizer need so that all ranks begin alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping

import torch

from ..objects import allgather_object as allgather_object
from ..objects import broadcast_object as broadcast_object
from ..process_sets import ProcessSet, global_process_set
from ..world import rank
from .ops import broadcast_async_
from .options import load_as_it_is


def broadcast_parameters(params: Mapping | Iterable, root_rank: int,
                         process_set: ProcessSet = global_process_set) -> None:
    """The root's parameters, in place, on all ranks. `params`: a state_dict, or parameters, or (name, parameter) pairs:
    of all ranks the same, of which those without a name in the same order. Raises ValueError for anything else, and
    what broadcast_ raises."""
    if isinstance(params, Mapping):
        pairs = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, (str, torch.Tensor)):
        pairs = [one if isinstance(one, tuple) else (None, one) for one in params]
    else:
        raise ValueError(f"gradring: broadcast_parameters takes a dict or parameters, not a {type(params).__name__}")
    handles = [broadcast_async_(parameter, root_rank, name, process_set) for name, parameter in pairs]
    for handle in handles:
        handle.wait()


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None,
                              process_set: ProcessSet = global_process_set) -> None:
    """The root's optimizer state and options, such as the learning rate, on all ranks. No step is taken: where the root
    has no state yet, nobody has any afterwards. `model`: taken for Horovod's sake, and not needed. Raises ValueError
    for LBFGS, as Horovod does."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("gradring: the state of LBFGS is not broadcast: its history is not a state of parameters")
    tensors: list[torch.Tensor] = []
    outline = _outline(optimizer.state_dict(), tensors) if rank() == root_rank else None
    outline = broadcast_object(outline, root_rank, "optimizer_state", process_set)
    state = None
    if rank() != root_rank:
        state = _filled(outline, tensors)
    broadcast_parameters([(f"optimizer_state.{i}", tensor) for i, tensor in enumerate(tensors)], root_rank, process_set)
    if state is not None:
        load_as_it_is(optimizer, state)


@dataclass
class _Tensor:
    """Where one of the state's tensors belongs."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def _outline(state: Any, tensors: list[torch.Tensor]) -> Any:
    """The state with a mark for each tensor, which goes into the list."""
    if isinstance(state, torch.Tensor):
        tensors.append(state.contiguous())
        return _Tensor(tuple(state.shape), state.dtype)
    return _mapped(state, lambda one: _outline(one, tensors))


def _filled(outline: Any, tensors: list[torch.Tensor]) -> Any:
    """The other way round, with tensors that are yet to be written."""
    if isinstance(outline, _Tensor):
        tensors.append(torch.empty(outline.shape, dtype=outline.dtype))
        return tensors[-1]
    return _mapped(outline, lambda one: _filled(one, tensors))


def _mapped(state, function):
    if isinstance(state, dict):
        return {key: function(value) for key, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)(function(value) for value in state)
    return state
