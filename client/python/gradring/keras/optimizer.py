"""Optimizers of Keras whose gradients are those of all ranks."""

from __future__ import annotations

import functools
from typing import Any

import keras

from ..process_sets import ProcessSet, global_process_set
from ..reduce_ops import Average, Sum
from .backends import Compression, as_dense, is_sparse, reduction

_Scaler = keras.optimizers.LossScaleOptimizer


class Distributed:
    """Of a class that is made for a user's optimizer, before that optimizer's own class. What all backends' trainers
    call is apply(): here gradients are exchanged."""

    _gradring: Any  # the class's: how gradients become one, and
    _passes: int  # of so many passes
    _divisor: int  # by what their sum is divided

    def register_local_var(self, var) -> None:
        """Its gradients are not exchanged. Raises ValueError for what is no variable, such as a parameter of torch, which would be
        none of those that are known here, and exchanged."""
        if not hasattr(var, "assign"):
            raise ValueError(f"gradring: register_local_var() of a {type(var).__name__}; it takes variables, such as layer.kernel")
        self.__dict__.setdefault("_local_variables", _Untracked()).items.append(var)

    def __deepcopy__(self, _):
        copy = _like(type(self), self)  # Keras would make one of the plain class
        copy.__dict__["_local_variables"] = _Untracked(self._local())
        return copy

    def build(self, variables):
        super().build(variables)
        if self._passes > 1 and not hasattr(self, "_sums"):
            self._count = self.add_variable(shape=(), dtype="int32", initializer="zeros", name="passes")
            self._sums = [self.add_variable_from_reference(one, name="sum_of_passes") for one in variables]

    def stateless_apply(self, optimizer_variables, grads, trainable_variables):
        """What JAX's trainer calls, and apply() comes of; but a loss scaler's does not come to apply()."""
        if isinstance(self, _Scaler):
            grads = self._gradring(grads, self._trainable_variables, self._local())
        return super().stateless_apply(optimizer_variables, grads, trainable_variables)

    def apply(self, grads, trainable_variables=None):
        if getattr(self, "_exchanged", False):  # by the loss scaler around this
            return super().apply(grads, trainable_variables)
        return self._step(list(grads), trainable_variables, super().apply)

    def _step(self, grads, variables, apply):
        """Exchanges, and applies what comes of it."""
        if not self.built:
            with keras.name_scope(self.name, caller=self):
                self.build(list(variables))
            self.built = True
        variables = list(variables) if variables is not None else self._trainable_variables
        local = self._local()
        if self._passes == 1:
            return apply(self._gradring(grads, variables, local), variables)
        present = [i for i, one in enumerate(grads) if one is not None]
        sums = [self._sums[self._get_variable_index(variables[i])] for i in present]
        for total, i in zip(sums, present, strict=True):
            total.assign_add(keras.ops.convert_to_tensor(self._dense(grads[i])))
        self._count.assign(self._count + 1)

        def exchange_and_apply():
            reduced = self._gradring([keras.ops.convert_to_tensor(one) for one in sums],
                                     [variables[i] for i in present], local)
            whole = [None] * len(grads)
            for i, one in zip(present, reduced, strict=True):
                whole[i] = one / self._divisor
            for total in sums:  # not before: of torch's, a rank without others has the sums themselves in its hands
                total.assign(keras.ops.zeros_like(total))
            apply(whole, variables)

        due = keras.ops.equal(self._count % self._passes, 0)
        return keras.ops.cond(due, exchange_and_apply, lambda: _nothing(self.iterations.assign_add(1)))

    def _dense(self, gradient):
        if not is_sparse(gradient):
            return gradient
        if not self._gradring.sparse_as_dense:
            raise ValueError("gradring: sparse gradients cannot be added up over backward_passes_per_step; make them dense with "
                             "sparse_as_dense=True")
        return as_dense(gradient)

    def _local(self):
        return getattr(self, "_local_variables", _Untracked()).items

    @property
    def variables(self):
        """Of the optimizer itself, so that a model is saved as it would be with that one."""
        passes = {id(one) for one in self.variables_of_passes()}
        return [one for one in super().variables if id(one) not in passes]

    def variables_of_passes(self) -> list:
        """How many passes there were, and what they have added up, which differs from rank to rank."""
        return [self._count, *self._sums] if hasattr(self, "_sums") else []


def _nothing(_):
    return None


class _Untracked:
    """A list that Keras does not take for the optimizer's state."""

    def __init__(self, items=()):
        self.items: list = list(items)


def _exchange_before_the_finite_check() -> None:
    """Keras puts a loss scaler around an optimizer that is compiled into a model of mixed_float16. It applies gradients
    where those of this rank are finite: the others would wait for a rank whose are not. So the scaler's gradients are
    exchanged before it looks at them, for optimizers of ours alone; then all ranks see the same."""
    original = _Scaler.apply
    if hasattr(original, "gradring"):
        return

    @functools.wraps(original)
    def apply(self, grads, trainable_variables=None):
        inner = self.inner_optimizer
        if not isinstance(inner, Distributed) or isinstance(self, Distributed):
            return original(self, grads, trainable_variables)
        if not self.built:
            with keras.name_scope(self.name, caller=self):
                self.build(list(trainable_variables))
            self.built = True

        def apply_to_all(reduced, variables):
            inner._exchanged = True
            try:
                original(self, reduced, variables)
            finally:
                inner._exchanged = False
        return inner._step(list(grads), trainable_variables, apply_to_all)

    without_state = _Scaler.stateless_apply

    @functools.wraps(without_state)
    def stateless_apply(self, optimizer_variables, grads, trainable_variables):
        inner = self.inner_optimizer
        if not isinstance(inner, Distributed) or isinstance(self, Distributed):
            return without_state(self, optimizer_variables, grads, trainable_variables)
        inner._exchanged = True
        try:
            reduced = inner._gradring(grads, self._trainable_variables, inner._local())
            return without_state(self, optimizer_variables, reduced, trainable_variables)
        finally:
            inner._exchanged = False
    apply.gradring = True
    _Scaler.apply, _Scaler.stateless_apply = apply, stateless_apply


def DistributedOptimizer(optimizer: keras.optimizers.Optimizer, name: str | None = None, device_dense: str = "",
                         device_sparse: str = "", compression=Compression.none, sparse_as_dense: bool = False,
                         gradient_predivide_factor: float = 1.0, op=Average, backward_passes_per_step: int = 1,
                         average_aggregated_gradients: bool = False, num_groups: int = 0,
                         groups: int | list | None = None, process_set: ProcessSet = global_process_set,
                         scale_local_gradients: bool = True) -> Any:
    """An optimizer of a class of the same name, derived from `optimizer`'s, with its settings and state, whose
    gradients are those of all ranks. A model saved with it is loaded without gradring as well; load_model() makes it
    distributed again.

    Args:
        name: of its operations in graphs; None: "Distributed" and the optimizer's class.
        compression: what is exchanged instead, such as Compression.fp16.
        sparse_as_dense: sparse gradients (tf.IndexedSlices; of torch, COO) are made dense before, instead of being
            gathered. With Keras on JAX, where Keras makes none, sparse ones are refused without this.
        gradient_predivide_factor: an average divides by this before it sums, and by the rest of size() after.
        op: Average or Sum.
        backward_passes_per_step: gradients of so many passes are added up before they are exchanged and applied;
            `average_aggregated_gradients` divides the sum by their number.
        groups: gradients that are handed over together: lists of variables, or the number of equal parts; None: all.
        process_set: the ranks that exchange; others keep what they have.
        scale_local_gradients: those of register_local_var() are divided by the number of ranks.
    Raises:
        ValueError, TypeError: arguments that make no sense together.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(f"gradring: DistributedOptimizer of a {type(optimizer).__name__}; it takes an optimizer of "
                        "Keras")
    if isinstance(optimizer, Distributed):
        raise ValueError("gradring: this optimizer is distributed already")
    if op not in (Average, Sum):
        raise ValueError(f"gradring: DistributedOptimizer with op={op}; with Keras it takes Average and Sum")
    if backward_passes_per_step < 1:
        raise ValueError(f"gradring: backward_passes_per_step={backward_passes_per_step}; the least is 1")
    if backward_passes_per_step > 1 and keras.backend.backend() == "jax":
        raise NotImplementedError("gradring: backward_passes_per_step with Keras on JAX; the optimizer's own "
                                  "gradient_accumulation_steps adds up as many")
    if num_groups and groups is None:
        groups = num_groups
    base = type(optimizer)
    # Of that module, so that a saved model names the optimizer that everybody has.
    made = type(base.__name__, (Distributed, base), {
        "__module__": base.__module__,
        "__doc__": base.__doc__,
        "_gradring": reduction(name or f"Distributed{base.__name__}", device_dense, device_sparse, compression,
                               sparse_as_dense, op, gradient_predivide_factor, groups, process_set,
                               scale_local_gradients),
        "_passes": backward_passes_per_step,
        "_divisor": backward_passes_per_step if average_aggregated_gradients else 1,
    })
    _exchange_before_the_finite_check()
    return _like(made, optimizer)


_NOT_IN_CONFIGS = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")


def _like(made, optimizer):
    copy = _without_state(made, optimizer)
    if optimizer.built:
        copy.build(optimizer._trainable_variables)
        for ours, theirs in zip(copy.variables, optimizer.variables):
            ours.assign(theirs)
    return copy


def _without_state(made, optimizer):
    """Schedules and optimizers go over as they are, or as such a copy: their classes may not be found by their names."""
    config = optimizer.get_config()
    if isinstance(optimizer, _Scaler):
        inner = optimizer.inner_optimizer
        return made(**config | {"inner_optimizer": _without_state(type(inner), inner)})
    if callable(getattr(optimizer, "_learning_rate", None)):
        config["learning_rate"] = optimizer._learning_rate
    copy = made.from_config(config)
    for name in _NOT_IN_CONFIGS:
        if hasattr(optimizer, name):
            setattr(copy, name, getattr(optimizer, name))
    return copy


def PartialDistributedOptimizer(optimizer: keras.optimizers.Optimizer, name: str | None = None, device_dense: str = "",
                                device_sparse: str = "", compression=Compression.none, sparse_as_dense: bool = False,
                                gradient_predivide_factor: float = 1.0, op=Average, backward_passes_per_step: int = 1,
                                average_aggregated_gradients: bool = False, groups: int | list | None = None,
                                process_set: ProcessSet = global_process_set, local_layers=None,
                                scale_local_gradients: bool = True) -> Any:
    """DistributedOptimizer which does not exchange the gradients of `local_layers`: a layer of Keras, or several."""
    layers = [] if local_layers is None else local_layers if isinstance(local_layers, (list, tuple)) else [local_layers]
    for one in layers:
        if not isinstance(one, keras.layers.Layer):
            raise ValueError(f"gradring: local_layers has a {type(one).__name__}; it takes layers of Keras")
    made = DistributedOptimizer(optimizer, name, device_dense, device_sparse, compression, sparse_as_dense,
                                gradient_predivide_factor, op, backward_passes_per_step, average_aggregated_gradients,
                                groups=groups, process_set=process_set, scale_local_gradients=scale_local_gradients)
    for layer in layers:
        for variable in layer.trainable_weights:
            made.register_local_var(variable)
    return made
