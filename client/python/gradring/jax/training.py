"""What a training loop needs: gradients averaged, and parameters that start out the same."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from .._native import Wire
from ..process_sets import ProcessSet, global_process_set
from ..reduce_ops import Average
from .ops import allreduce, broadcast


class GradientTransformation(NamedTuple):
    """As optax has it, which need not be installed."""

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]


class Stateless(NamedTuple):
    """The state of a transformation that has none."""


def average_gradients(op=Average, name: str | None = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                      *, wire: Wire | str = Wire.DEFAULT,
                      process_set: ProcessSet = global_process_set) -> GradientTransformation:
    """Puts the gradients of all ranks in the place of this rank's: optax.chain(average_gradients(), optimizer).

    All leaves are handed over in one call. Arguments are those of allreduce. In optax.MultiSteps(optax.chain(...), k)
    gradients are summed up for k steps before they are exchanged.
    """
    def init(params):
        del params
        return Stateless()

    def update(updates, state, params=None, **_):
        del params
        return allreduce(updates, op, name, prescale_factor, postscale_factor, wire=wire,
                         process_set=process_set), state
    return GradientTransformation(init, update)


def broadcast_parameters(tree: Any, root_rank: int = 0, *, process_set: ProcessSet = global_process_set) -> Any:
    """The root's parameters, or optimizer's state, on all ranks, before training begins."""
    return broadcast(tree, root_rank, process_set=process_set)
