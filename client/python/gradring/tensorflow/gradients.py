"""All gradients of a step in one exchange, for optimizers and tapes.

One operation has them all: in a graph, operations of their own could start in another order on each rank.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, Iterable, Sequence

import tensorflow as tf

from .. import exchange
from ..groups import batches_of, check_groups, known_by_keys
from ..process_sets import ProcessSet, global_process_set
from ..reduce_ops import Average, Sum
from .bridge import PASSING, name_for, run
from .compression import Compression
from .ops import check_sparse
from .standing import size_of


@dataclasses.dataclass(frozen=True)
class Reduction:
    """How gradients of the ranks become one."""

    name: str = "gradients"
    device_dense: str = ""
    device_sparse: str = ""
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    op: Any = Average
    gradient_predivide_factor: float = 1.0
    groups: int | list | None = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True

    def __post_init__(self):
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError(f"gradring: gradient_predivide_factor with op={self.op}; it is for Average alone")
        check_groups(self.groups)

    def __call__(self, gradients: Sequence, variables: Sequence, local: Iterable = (), name: str | None = None) -> list:
        """The reduced gradients; None where there is none. Those of `local` variables stay as they are, or are divided
        by the number of ranks. All ranks must have gradients for the same variables."""
        results = list(gradients)
        mine = {key_of(one) for one in local}
        shared = []
        for i, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            if gradient is None:
                continue
            if key_of(variable) in mine:
                results[i] = self._scaled(gradient)
            else:
                if self.sparse_as_dense and isinstance(gradient, tf.IndexedSlices):
                    gradient = tf.convert_to_tensor(gradient)
                shared.append((i, gradient))
        batches = batches_of(known_by_keys(self.groups, key_of), [key_of(variables[i]) for i, _ in shared])
        reduced = self._exchange([gradient for _, gradient in shared], batches, name)
        for (i, _), gradient in zip(shared, reduced, strict=True):
            results[i] = gradient
        return results

    def _scaled(self, gradient):
        if not self.scale_local_gradients:
            return gradient
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(self._scaled(gradient.values), gradient.indices, gradient.dense_shape)
        return gradient / tf.cast(size_of(self.process_set), gradient.dtype)

    def _exchange(self, gradients, batches, name):
        if not gradients:
            return []
        sparse = [i for i, one in enumerate(gradients) if isinstance(one, tf.IndexedSlices)]
        dense = [i for i in range(len(gradients)) if i not in set(sparse)]
        factor = self.gradient_predivide_factor
        if sparse:
            check_sparse(self.op, factor, 1.0)
        with tf.device(self.device_sparse):
            parts = [part for i in sparse for part in (gradients[i].values, gradients[i].indices)]
        with tf.device(self.device_dense):
            packed = [self.compression.compress(gradients[i]) for i in dense]
            tensors = [one for one, _ in packed] + parts
            place_of = {i: place for place, i in enumerate(dense)}
            chosen = [[place_of[i] for i in batch if i in place_of] for batch in batches]
            shapes = [one.shape for one in tensors[:len(dense)]] + [[None, *one.shape[1:]] for one in parts]
            outputs = self._through(tensors, shapes, len(dense), [one for one in chosen if one], name)
            results = list(gradients)
            for i, one, (_, context) in zip(dense, outputs, packed):
                results[i] = self.compression.decompress(one, context)
        for place, i in enumerate(sparse):
            values, indices = outputs[len(dense) + 2 * place:][:2]
            results[i] = tf.IndexedSlices(values, indices, gradients[i].dense_shape)
        return results

    def _through(self, tensors, shapes, dense, batches, name):
        """The exchange as one operation. Gradients of what comes of it are reduced as the gradients were."""
        step = _Step(self.op, self.gradient_predivide_factor, dense, batches, name_for(self.name, name), self.process_set)

        @tf.custom_gradient
        def through(*values):
            def backward(*upstream):
                if self.op not in (Average, Sum):
                    raise NotImplementedError(f"gradring: gradients reduced with {self.op} have none; those of Average and "
                                              "Sum have")
                if dense < len(values):
                    raise NotImplementedError("gradring: exchanged tf.IndexedSlices have no gradient; make them dense with "
                                              "sparse_as_dense=True")
                again = dataclasses.replace(self, name=f"{self.name}_gradient")
                return again._through(upstream, shapes, dense, batches, name and f"{name}_gradient")
            return run(step, values, [one.dtype for one in values], shapes, "gradring_gradients"), backward
        return list(through(*tensors))


@dataclasses.dataclass(frozen=True)
class _Step:
    """The exchange of one step, on arrays: dense gradients first, then values and indices of sparse ones."""

    op: Any
    predivide: float
    dense: int
    batches: list[list[int]]
    name: str | None
    process_set: ProcessSet

    def __call__(self, *arrays):
        if not self.process_set.included() or self.process_set.size() == 1:
            return arrays
        handles = [exchange.allreduce(PASSING, [arrays[i] for i in batch], op=self.op,
                                      name=exchange.numbered(self.name, number, len(self.batches)),
                                      prescale=1 / self.predivide, postscale=self.predivide,
                                      process_set=self.process_set) for number, batch in enumerate(self.batches)]
        results = list(arrays)
        if self.dense < len(arrays):
            rows = exchange.allgather(PASSING, arrays[self.dense:], name=self.name, process_set=self.process_set,
                                      now=True).wait()
            if self.op == Average:
                for values in rows[::2]:
                    values /= self.process_set.size()
            results[self.dense:] = rows
        for handle, batch in zip(handles, self.batches, strict=True):
            for i, result in zip(batch, handle.wait(), strict=True):
                results[i] = result
        return results


def key_of(variable: Any) -> int:
    """By which a variable is known; a Keras variable is the one of TensorFlow that it holds."""
    value = getattr(variable, "value", variable)
    return id(variable if callable(value) else value)


def groups_of(num_groups: int, groups: int | list | None) -> int | list | None:
    """`num_groups` is what Horovod had before `groups`."""
    if num_groups:
        warnings.warn("num_groups is now called groups", DeprecationWarning, stacklevel=3)
        return num_groups if groups is None else groups
    return groups
