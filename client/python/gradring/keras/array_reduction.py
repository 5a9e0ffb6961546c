"""What gradring.tensorflow.gradients is for TensorFlow, for Keras on PyTorch and on JAX."""

from __future__ import annotations

from typing import Any, Iterable, Sequence

import keras

from .. import exchange
from ..groups import batches_of, check_groups, known_by_keys
from ..reduce_ops import Average

BACKEND = keras.backend.backend()
if BACKEND == "jax":
    import jax
    import numpy as np
    from jax.experimental import io_callback
    from jax.experimental.sparse import JAXSparse

    from ..arrays import ARRAYS as FRONTEND
    from ..jax.host import on_host

    def is_sparse(gradient: Any) -> bool:
        return isinstance(gradient, JAXSparse)

    def as_dense(gradient: Any) -> Any:
        return gradient.todense()

    def start_sparse(gradient, op, process_set):
        raise NotImplementedError("gradring: a sparse gradient with Keras on JAX; make it dense with sparse_as_dense=True")

    def exchanged(function, tensors):
        return on_host(function, tensors, lambda leaves: [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in leaves])

    def size_of(process_set, dtype):
        # When the step runs: of an elastic job's ranks there may be others than when it was compiled.
        return io_callback(lambda: np.asarray(process_set.size(), dtype), jax.ShapeDtypeStruct((), dtype))
elif BACKEND == "torch":
    from ..torch.frontend import TENSORS as FRONTEND
    from ..torch.ops import sparse_allreduce_async

    def is_sparse(gradient: Any) -> bool:
        return gradient.is_sparse

    def as_dense(gradient: Any) -> Any:
        return gradient.to_dense()

    def start_sparse(gradient, op, process_set):
        return sparse_allreduce_async(gradient, op=op, process_set=process_set)

    def exchanged(function, tensors):
        return function(tensors)

    def size_of(process_set, dtype):
        return process_set.size()
else:
    raise ImportError(f"gradring.keras is for Keras on TensorFlow, PyTorch and JAX; this one is on {BACKEND}, where Keras does not train")


def key_of(variable: Any) -> int:
    """By which a variable is known."""
    return id(variable)


class ArrayReduction:
    """How gradients of the ranks become one."""

    def __init__(self, name, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor,
                 groups, process_set, scale_local_gradients):
        if gradient_predivide_factor != 1.0 and op != Average:
            raise ValueError(f"gradring: gradient_predivide_factor with op={op}; it is for Average alone")
        check_groups(groups)
        self.name = name
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self._compression = compression
        self._op = op
        self._predivide = gradient_predivide_factor
        self._groups = groups
        self._scale = scale_local_gradients

    def __call__(self, gradients: Sequence, variables: Sequence, local: Iterable = ()) -> list:
        """The reduced gradients; None where there is none. Those of `local` variables stay as they are, or are divided
        by the number of ranks. All ranks must have gradients for the same variables."""
        results = list(gradients)
        mine = {key_of(one) for one in local}
        dense, sparse = [], []
        for i, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            if gradient is None:
                continue
            if key_of(variable) in mine:
                results[i] = gradient / size_of(self.process_set, gradient.dtype) if self._scale else gradient
            elif is_sparse(gradient) and not self.sparse_as_dense:
                sparse.append(i)
            else:
                results[i] = as_dense(gradient) if is_sparse(gradient) else gradient
                dense.append(i)
        if not self.process_set.included():
            return results
        if sparse and self._predivide != 1.0:
            raise NotImplementedError("gradring: sparse gradients take no gradient_predivide_factor; make them dense with "
                                      "sparse_as_dense=True")
        waiting = [start_sparse(results[i], self._op, self.process_set) for i in sparse]
        if dense:
            self._exchange_dense(results, dense, [key_of(variables[i]) for i in dense])
        for i, handle in zip(sparse, waiting, strict=True):
            results[i] = handle.wait()
        return results

    def _exchange_dense(self, results, places, keys):
        packed = [self._compression.compress(results[i]) for i in places]
        batches = batches_of(known_by_keys(self._groups, key_of), keys)
        reduced = exchanged(lambda tensors: self._reduced(tensors, batches), [one for one, _ in packed])
        for i, one, (_, context) in zip(places, reduced, packed, strict=True):
            results[i] = self._compression.decompress(one, context)

    def _reduced(self, tensors, batches):
        if self.process_set.size() == 1:  # now: a step that JAX compiled for one rank goes on with more
            return tensors
        handles = [exchange.allreduce(FRONTEND, [tensors[i] for i in batch], op=self._op, prescale=1 / self._predivide,
                                      postscale=self._predivide, process_set=self.process_set) for batch in batches]
        results = list(tensors)
        for batch, handle in zip(batches, handles, strict=True):
            for i, result in zip(batch, handle.wait(), strict=True):
                results[i] = result
        return results
