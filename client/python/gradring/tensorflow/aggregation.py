"""Gradients of several passes in one exchange, in graphs of TensorFlow 1."""

from __future__ import annotations

from typing import Callable, Sequence

import tensorflow as tf

from .gradients import Reduction


class Aggregation:
    """Adds up the gradients of `passes` passes, which are exchanged with the last of them. Its variables are local
    ones of the graph, which tf.compat.v1.local_variables_initializer() initializes."""

    def __init__(self, passes: int, average: bool, reduction: Reduction):
        self._passes = passes
        self._divisor = passes if average else 1
        self._reduction = reduction
        self._counter: tf.Variable | None = None

    def reduced(self, gradients: Sequence, variables: Sequence, local: list) -> list:
        """In the last pass the sums of all ranks; what they are in others nobody may ask. One graph has it once."""
        if self._counter is not None and self._counter.graph is tf.compat.v1.get_default_graph():
            raise ValueError("gradring: with backward_passes_per_step, compute_gradients() is for one loss a graph")
        present = [i for i, one in enumerate(gradients) if one is not None]
        given = [self._dense(gradients[i]) for i in present]
        with tf.compat.v1.variable_scope(None, f"{self._reduction.name}_aggregation"):
            self._counter = _local_variable("counter", tf.constant(0))
            sums = [_local_variable(f"sum_{i}", tf.zeros(one.shape, one.dtype)) for i, one in enumerate(given)]
        first = tf.equal(self._counter.read_value() % self._passes, 0)
        with tf.control_dependencies([first]):
            added = [sum_.assign(tf.where(first, one, sum_.read_value() + one))
                     for sum_, one in zip(sums, given, strict=True)]
        with tf.control_dependencies([one.op for one in added]):
            count = self._counter.assign_add(1)
        with tf.control_dependencies([count]):
            self._due = tf.equal(tf.identity(count) % self._passes, 0)
            totals = [sum_.read_value() for sum_ in sums]

        def exchange():
            reduced = self._reduction(totals, [variables[i] for i in present], local)
            return [one / tf.cast(self._divisor, one.dtype) for one in reduced]
        results = list(gradients)
        for i, one in zip(present, _as_list(tf.cond(self._due, exchange, lambda: totals)), strict=True):
            results[i] = one
        return results

    def apply(self, apply_gradients: Callable[[], tf.Operation], global_step) -> tf.Operation:
        """Applies them after the last pass; after others, only counts the step."""
        def count():
            return tf.no_op() if global_step is None else global_step.assign_add(1, read_value=False)
        done = tf.cond(self._due, lambda: _done(apply_gradients()), lambda: _done(count()))
        return tf.group(done)

    def _dense(self, gradient):
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        if not self._reduction.sparse_as_dense:
            raise ValueError("gradring: tf.IndexedSlices cannot be added up over backward_passes_per_step; make them "
                             "dense with sparse_as_dense=True")
        return tf.convert_to_tensor(gradient)


def _local_variable(name, initial):
    return tf.compat.v1.get_variable(name, initializer=initial, trainable=False, use_resource=True,
                                     collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES])


def _done(operation):
    with tf.control_dependencies([operation] if operation is not None else []):
        return tf.constant(True)


def _as_list(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]
