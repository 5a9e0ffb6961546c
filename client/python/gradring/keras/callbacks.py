"""Callbacks of Keras. All ranks must have them in the same order."""

from __future__ import annotations

from typing import Callable

import keras
import numpy as np

from .. import ops as array_ops
from ..world import rank, size
from .backends import key_of
from .functions import broadcast_variables

__all__ = ["BestModelCheckpoint", "BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback",
           "LearningRateWarmupCallback", "MetricAverageCallback"]


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """After the first batch, when all of them are there, gives the model's weights and the optimizer's variables the
    root's values. Random seeds stay those of each rank, so that dropout and augmentation differ from rank to rank.

    Args:
        local_variables: those that each rank keeps.
        device: Horovod's, and means nothing here.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables=None):
        super().__init__()
        self.root_rank = root_rank
        self.broadcast_done = False
        one = local_variables is not None and not isinstance(local_variables, (list, tuple, set))
        self._local: list = []
        for variable in [local_variables] if one else local_variables or []:
            self.register_local_var(variable)

    def register_local_var(self, var) -> None:
        """It keeps the value that it has on each rank."""
        if not hasattr(var, "assign"):
            raise ValueError(f"gradring: local_variables has a {type(var).__name__}; it takes variables, such as layer.kernel")
        self._local.append(var)

    def on_train_batch_end(self, batch, logs=None):
        if self.broadcast_done:
            return
        optimizer = self.model.optimizer
        kept = {key_of(one) for one in self._local}
        variables = [*self.model.weights, *(optimizer.variables if optimizer is not None else [])]
        known: dict[int, object] = {key_of(one): one for one in variables}
        broadcast_variables([one for key, one in known.items() if key not in kept], self.root_rank)
        self.broadcast_done = True


class MetricAverageCallback(keras.callbacks.Callback):
    """At the end of each epoch, makes the logs the average of all ranks', for the callbacks that come after it."""

    def __init__(self, device: str = ""):
        super().__init__()

    def on_epoch_end(self, epoch, logs=None):
        if not logs:
            return
        names = sorted(logs)
        values = [np.asarray(keras.ops.convert_to_numpy(one) if keras.ops.is_tensor(one) else one, np.float64)
                  for one in (logs[name] for name in names)]
        means = array_ops.allreduce(np.concatenate([one.ravel() for one in values]))
        parts = np.split(means, np.cumsum([one.size for one in values])[:-1])
        for name, value, part in zip(names, values, parts, strict=True):
            logs[name] = part.reshape(value.shape) if value.ndim else part.item()  # of several classes, one each


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """From epoch `start_epoch` to before `end_epoch`, the learning rate is `initial_lr * multiplier(epoch)`.

    Args:
        multiplier: a function of the epoch; or a number, which is taken to the power of `epoch - start_epoch`.
        staircase: set it with each epoch; otherwise with each batch, when the epoch has a fraction.
        momentum_correction: where the rate changes, the momentum gathered so far is scaled along with it, if the
            optimizer has one (SGD, RMSprop).
        steps_per_epoch: how many batches an epoch has, where Keras does not know.
    """

    def __init__(self, initial_lr: float, multiplier: float | Callable[[float], float], start_epoch: int = 0,
                 end_epoch: int | None = None, staircase: bool = True, momentum_correction: bool = True,
                 steps_per_epoch: int | None = None):
        super().__init__()
        if initial_lr is None:
            raise ValueError("gradring: initial_lr is the rate that is multiplied; it cannot be None")
        self.initial_lr = initial_lr
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0

    def on_train_begin(self, logs=None):
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise ValueError(f"gradring: Keras does not know how many batches an epoch has; give "
                                 f"{type(self).__name__} steps_per_epoch")

    def on_epoch_begin(self, epoch, logs=None):
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._adjust(epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._adjust(epoch)

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["lr"] = _rate(self.model.optimizer)

    def _adjust(self, epoch):
        optimizer = self.model.optimizer
        before, now = _rate(optimizer), self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = now
        if self.momentum_correction and before > 0 and now != before:
            for one in _velocities(optimizer):
                one.assign(one * (now / before))


def _rate(optimizer) -> float:
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


def _velocities(optimizer) -> list:
    """What momentum is applied to, which has the learning rate in it. Scaled once, it does what momentum that is
    scaled for one step would: Keras compiles momentum into the step, where it cannot be changed any more."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    # Of these alone: Muon has `momentum` and `momentums` as well, which gather gradients as they are.
    if not isinstance(optimizer, (keras.optimizers.SGD, keras.optimizers.RMSprop)) or not optimizer.momentum:
        return []
    known = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or []
    return [one for one in known if one is not None]


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size()` to `initial_lr`, batch by batch, in the first
    `warmup_epochs`. `initial_lr` is that of all ranks together: one rank's, times size()."""

    def __init__(self, initial_lr: float, warmup_epochs: int = 5, momentum_correction: bool = True,
                 steps_per_epoch: int | None = None, verbose: int = 0):
        def multiplier(epoch):
            epoch += 1 / self.steps_per_epoch  # so that epochs end with round numbers
            return 1 / size() * (epoch * (size() - 1) / warmup_epochs + 1)
        super().__init__(initial_lr, multiplier, start_epoch=0, end_epoch=warmup_epochs, staircase=False,
                         momentum_correction=momentum_correction, steps_per_epoch=steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch, logs=None):
        if epoch == self.end_epoch - 1:  # where a call has several batches (steps_per_execution) the last one began earlier
            self._adjust(self.end_epoch - 1 / self.steps_per_epoch)
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0 and rank() == 0:
            print(f"\nEpoch {epoch + 1}: the learning rate is warmed up to {_rate(self.model.optimizer):g}.")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """keras.callbacks.ModelCheckpoint of whole models, the best only. `filepath` can be set later as well, before
    training. For rank 0: all ranks would write the same file."""

    def __init__(self, monitor: str = "val_loss", verbose: int = 0, mode: str = "auto", save_freq="epoch",
                 filepath: str = "best_model.keras"):
        super().__init__(filepath=filepath, monitor=monitor, verbose=verbose, save_best_only=True,
                         save_weights_only=False, mode=mode, save_freq=save_freq)
