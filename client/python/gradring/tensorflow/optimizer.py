"""Optimizers of TensorFlow 1 whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..process_sets import ProcessSet, global_process_set
from ..reduce_ops import Adasum, Average
from .aggregation import Aggregation
from .compression import Compression
from .gradients import Reduction, groups_of

_Optimizer = tf.compat.v1.train.Optimizer


class _Wrapped(_Optimizer):
    """Another optimizer, whose state is that one's."""

    def __init__(self, optimizer: _Optimizer, name: str, use_locking: bool):
        super().__init__(use_locking=use_locking, name=name)
        self._optimizer = optimizer

    def compute_gradients(self, *args, **kwargs):
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def get_slot(self, *args, **kwargs):
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args, **kwargs):
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args, **kwargs):
        return self._optimizer.variables(*args, **kwargs)


class _DistributedOptimizer(_Wrapped):
    """compute_gradients() exchanges."""

    def __init__(self, optimizer, use_locking, passes, average, reduction: Reduction):
        super().__init__(optimizer, reduction.name, use_locking)
        self._reduction = reduction
        self._local: list = []
        self._aggregation = None
        if passes > 1:
            if tf.executing_eagerly():
                raise ValueError("gradring: backward_passes_per_step of an optimizer of TensorFlow 1 is for graphs")
            self._aggregation = Aggregation(passes, average, reduction)

    def register_local_var(self, var) -> None:
        """Its gradients are not exchanged."""
        self._local.append(var)

    def compute_gradients(self, *args, **kwargs):
        """As the optimizer's own, reduced over all ranks."""
        gradients, variables = zip(*self._optimizer.compute_gradients(*args, **kwargs))
        reduce = self._aggregation.reduced if self._aggregation else self._reduction
        return list(zip(reduce(gradients, variables, self._local), variables))

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        grads_and_vars = list(grads_and_vars)
        if self._aggregation is None:
            return super().apply_gradients(grads_and_vars, global_step, name)
        apply = super().apply_gradients
        return self._aggregation.apply(lambda: apply(grads_and_vars, global_step, name), global_step)


class _AdasumOptimizer(_Wrapped):
    """Each rank takes its own steps; what these changed is what Adasum combines, every `passes` steps."""

    def __init__(self, optimizer, use_locking, passes, reduction: Reduction):
        super().__init__(optimizer, reduction.name, use_locking)
        self._passes = passes
        self._reduction = reduction

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        grads_and_vars = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
        variables = [variable for _, variable in grads_and_vars]
        with tf.compat.v1.variable_scope(None, self._reduction.name):
            steps = _variable("steps", tf.constant(0))
            starts = [_variable(f"start_{i}", tf.zeros(one.shape, one.dtype)) for i, one in enumerate(variables)]
        first = tf.equal(steps.read_value(), 0)
        with tf.control_dependencies([first]):
            kept = [start.assign(tf.where(first, one.read_value(), start.read_value()))
                    for start, one in zip(starts, variables, strict=True)]
        with tf.control_dependencies(kept):
            stepped = self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)
        with tf.control_dependencies([stepped] if stepped is not None else []):
            count = steps.assign_add(1)
        with tf.control_dependencies([count]):
            due = tf.equal(steps.read_value() % self._passes, 0)

        def combine():
            changes = [one.read_value() - start.read_value() for one, start in zip(variables, starts, strict=True)]
            combined = self._reduction(changes, variables)
            with tf.control_dependencies(combined):
                moved = [start.assign_add(change) for start, change in zip(starts, combined, strict=True)]
            with tf.control_dependencies(moved):
                assigned = [one.assign(start.read_value()) for one, start in zip(variables, starts, strict=True)]
            with tf.control_dependencies(assigned):
                return tf.constant(True)
        return tf.group(tf.cond(due, combine, lambda: tf.constant(False)))


def _variable(name, initial):
    return tf.compat.v1.get_variable(name, initializer=initial, trainable=False, use_resource=True)


def DistributedOptimizer(optimizer: Any, name: str | None = None, use_locking: bool = False, device_dense: str = "",
                         device_sparse: str = "", compression=Compression.none, sparse_as_dense: bool = False,
                         backward_passes_per_step: int = 1, op=Average, gradient_predivide_factor: float = 1.0,
                         average_aggregated_gradients: bool = False, num_groups: int = 0,
                         groups: int | list | None = None, process_set: ProcessSet = global_process_set,
                         scale_local_gradients: bool = True) -> Any:
    """An optimizer like `optimizer`, of tf.compat.v1.train or of Keras, whose gradients are those of all ranks.

    Args:
        name: of its operations; None: "Distributed" and the optimizer's class.
        compression: what is exchanged instead, such as Compression.fp16.
        sparse_as_dense: tf.IndexedSlices are made dense before, instead of being gathered.
        backward_passes_per_step: gradients of so many passes are added up before they are exchanged and applied;
            `average_aggregated_gradients` divides the sum by their number.
        op: Average, Sum, Min, Max, Product; Adasum (not with Keras) combines what the ranks' own steps changed.
        gradient_predivide_factor: an average divides by this before it sums, and by the rest of size() after.
        groups: gradients that are handed over together: lists of variables, or the number of equal parts; None: all.
        process_set: the ranks that exchange; others keep what they have.
        scale_local_gradients: those of register_local_var() are divided by the number of ranks.
    Raises:
        ValueError, TypeError: arguments that make no sense together.
    """
    if backward_passes_per_step < 1:
        raise ValueError(f"gradring: backward_passes_per_step={backward_passes_per_step}; the least is 1")
    groups = groups_of(num_groups, groups)
    if not isinstance(optimizer, _Optimizer):
        from ..keras import DistributedOptimizer as keras_optimizer

        return keras_optimizer(optimizer, name, device_dense, device_sparse, compression, sparse_as_dense,
                               gradient_predivide_factor, op, backward_passes_per_step, average_aggregated_gradients,
                               groups=groups, process_set=process_set, scale_local_gradients=scale_local_gradients)
    if isinstance(optimizer, _Wrapped):
        raise ValueError("gradring: this optimizer is distributed already")
    if op is Adasum and average_aggregated_gradients:
        raise ValueError("gradring: Adasum combines changes, not gradients; it takes no average_aggregated_gradients")
    kind = "DistributedDelta" if op is Adasum else "Distributed"
    reduction = Reduction(name or f"{kind}{type(optimizer).__name__}", device_dense, device_sparse, compression,
                          sparse_as_dense, op, gradient_predivide_factor, groups, process_set, scale_local_gradients)
    if op is Adasum:
        return _AdasumOptimizer(optimizer, use_locking, backward_passes_per_step, reduction)
    return _DistributedOptimizer(optimizer, use_locking, backward_passes_per_step, average_aggregated_gradients,
                                 reduction)
