"""Elastic training with TensorFlow 2."""

from __future__ import annotations

from typing import Any, Sequence

import tensorflow as tf

from ..elastic import HorovodInternalError, HostsUpdatedInterrupt, ObjectState, State, run
from ..elastic.parts import Keeper, PartsState, assign

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "TensorFlowKerasState",
           "TensorFlowState", "run"]


class TensorFlowState(PartsState):
    """Variables, and anything that can be pickled."""

    def __init__(self, variables: Sequence[tf.Variable], **values: Any):
        super().__init__({"variables": Keeper(list(variables), _read, _write)}, **values)


def TensorFlowKerasState(model, optimizer=None, **values) -> PartsState:
    """gradring.keras.elastic.KerasState, as Horovod calls it here."""
    from ..keras.elastic import KerasState

    return KerasState(model, optimizer, **values)


def _read(variables):
    return [one.numpy() for one in variables]


def _write(variables, values):
    assign(variables, values)
