"""Elastic training of Keras's models.

    @gradring.keras.elastic.run
    def train(state):
        state.model.fit(data, epochs=EPOCHS - state.epoch,
                        callbacks=[UpdateEpochStateCallback(state), CommitStateCallback(state)])

    train(KerasState(model, epoch=0, batch=0))
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from ..elastic import HorovodInternalError, HostsUpdatedInterrupt, ObjectState, State, run
from ..elastic.parts import Keeper, PartsState, assign
from .optimizer import Distributed

__all__ = ["CommitStateCallback", "HorovodInternalError", "HostsUpdatedInterrupt", "KerasState", "ObjectState", "State",
           "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]


class _Own(Keeper):
    """Of what each rank has for itself. It is kept nevertheless: on JAX a step that fails has used it up."""

    def sync(self):
        pass


class KerasState(PartsState):
    """A model, its optimizer, and anything that can be pickled, such as `epoch` and `batch`. Of the model the weights:
    random seeds stay those of each rank. Where the model is compiled anew, its new optimizer is kept."""

    def __init__(self, model: keras.Model, optimizer: keras.optimizers.Optimizer | None = None, **values: Any):
        """`optimizer`: None is the one that the model was compiled with. The model must have been built."""
        super().__init__(_keepers_of(model, optimizer), **values)
        self._look_at_optimizer()

    def __setattr__(self, name, value):
        if name == "model":  # its optimizer and its seeds come with it
            self._take_over(_keepers_of(value, None))
        else:
            super().__setattr__(name, value)
        if name in ("model", "optimizer"):
            self._look_at_optimizer()

    def _take_over(self, keepers):
        for part, keeper in keepers.items():
            self._keepers[part] = keeper
            object.__setattr__(self, part, keeper.part)

    def _look_at_optimizer(self):
        kept = self._keepers.get("optimizer")
        self._is_of_model = kept is None or kept.part is getattr(self.model, "optimizer", None)

    def _follow_model(self):
        """compile() gives it another optimizer, as after layers were set free, or in a reset callback. Ranks that came in would go on
        with the state of one that nobody uses any more, and their weights would drift away from those of the others."""
        made = getattr(self.model, "optimizer", None)
        kept = self._keepers.get("optimizer")
        if self._is_of_model and made is not None and (kept is None or kept.part is not made):
            self._take_over({"optimizer": _keeper_of_optimizer(made, self.model)})

    def save(self):
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # on JAX the variables are empty in the midst of fit()
        self._follow_model()
        super().save()

    def sync(self):
        self._follow_model()
        super().sync()


def _keepers_of(model, optimizer):
    if not model.built:
        raise ValueError("gradring: KerasState of a model without weights; build it first, or call it once")
    optimizer = optimizer or getattr(model, "optimizer", None)
    weights = {id(one) for one in model.weights}
    keepers = {"model": Keeper(model, _read, _write),
               "_seeds": _Own([one for one in model.variables if id(one) not in weights], _read, _write)}
    return keepers | ({} if optimizer is None else {"optimizer": _keeper_of_optimizer(optimizer, model)})


def _keeper_of_optimizer(optimizer, model):
    optimizer.build(model.trainable_variables)
    return Keeper(optimizer, _read, _write)


def _variables(part):
    if isinstance(part, list):
        return part
    if isinstance(part, keras.Model):
        return part.weights
    wrapped = [part, part.inner_optimizer] if isinstance(part, keras.optimizers.LossScaleOptimizer) else [part]
    passes = [one for each in wrapped if isinstance(each, Distributed) for one in each.variables_of_passes()]
    return [*part.variables, *passes]


def _read(part):
    return [np.array(keras.ops.convert_to_numpy(one)) for one in _variables(part)]


def _write(part, values):
    assign(_variables(part), values)


class CommitStateCallback(keras.callbacks.Callback):
    """Commits the state after so many batches, and after each epoch. Ranks come in there, and whoever is left learns
    that others are gone: fit() ends by HostsUpdatedInterrupt then, and run() calls it again. Put it behind those that
    keep `batch` and `epoch`."""

    def __init__(self, state: State, batches_per_commit: int = 1):
        super().__init__()
        self._state = state
        self._batches_per_commit = batches_per_commit

    def on_train_begin(self, logs=None):
        self._left = self._batches_per_commit

    def on_train_batch_end(self, batch, logs=None):
        self._left -= 1
        if self._left == 0:
            self._left = self._batches_per_commit
            self._state.commit()

    def on_epoch_end(self, epoch, logs=None):
        self._state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """Keeps `state.batch`, the batches of this epoch that are done, so that training can go on in the middle of it."""

    def __init__(self, state: State):
        super().__init__()
        self._state = state

    def on_train_begin(self, logs=None):
        self._first = self._state.batch

    def on_train_batch_end(self, batch, logs=None):
        self._state.batch = self._first + batch + 1

    def on_epoch_end(self, epoch, logs=None):
        self._first = self._state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Keeps `state.epoch`, the epochs that are done, over all calls of fit(), each of which counts from 0."""

    def __init__(self, state: State):
        super().__init__()
        self._state = state

    def on_train_begin(self, logs=None):
        self._first = self._state.epoch

    def on_epoch_end(self, epoch, logs=None):
        self._state.epoch = self._first + epoch + 1
