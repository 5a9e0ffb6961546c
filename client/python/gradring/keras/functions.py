"""Values, variables and models, on all ranks."""

from __future__ import annotations

from typing import Any, Sequence

import keras
import numpy as np

from .. import ops as array_ops
from ..process_sets import ProcessSet, global_process_set
from ..reduce_ops import Average
from ..world import rank
from .backends import BACKEND, Compression
from .optimizer import Distributed, DistributedOptimizer


def allreduce(value: Any, name: str | None = None, average: bool | None = None, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0, op=None, compression=Compression.none) -> Any:
    """The values of all ranks in one: an array, a tensor, or a number. `op`: Average (the default), Sum, Min, Max,
    Product, Adasum. Result: a tensor of the backend."""
    packed, context = compression.compress(keras.ops.convert_to_tensor(value))
    result = array_ops.allreduce(_array(packed), average, name, op, prescale_factor, postscale_factor)
    return compression.decompress(keras.ops.convert_to_tensor(result), context)


def allgather(value: Any, name: str | None = None) -> Any:
    """The rows of all ranks, one below the other in the order of ranks; they may have different numbers of them."""
    return keras.ops.convert_to_tensor(array_ops.allgather(_array(value), name))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The root's value, on all ranks; theirs must have its shape and type."""
    return keras.ops.convert_to_tensor(array_ops.broadcast(_array(value), root_rank, name))


def reducescatter(value: Any, name: str | None = None, op=Average) -> Any:
    """This rank's rows of the sum, or Average; where rows cannot be shared out evenly the first ranks have one more."""
    return keras.ops.convert_to_tensor(array_ops.reducescatter(_array(value), op, name))


def _array(value):
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.convert_to_tensor(value)))


def broadcast_variables(variables: Sequence, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Gives the variables of Keras, such as model.variables, the root's values. All ranks must have the same ones."""
    variables = [one for one in variables if keras.backend.standardize_dtype(one.dtype) != "string"]
    handles = [array_ops.broadcast_async(_array(one), root_rank, process_set=process_set) for one in variables]
    for one, handle in zip(variables, handles, strict=True):
        value = handle.wait()
        if rank() != root_rank:
            one.assign(value)


def broadcast_global_variables(root_rank: int) -> Any:
    """The operation that gives all variables of a graph of TensorFlow 1 the root's values. Raises RuntimeError outside
    of graphs: there, BroadcastGlobalVariablesCallback and broadcast_variables() do it."""
    if BACKEND == "tensorflow":
        from ..tensorflow.functions import broadcast_global_variables as of_graph

        return of_graph(root_rank)
    raise RuntimeError("gradring: broadcast_global_variables() is for graphs of TensorFlow 1; use "
                       "broadcast_variables(model.variables, root_rank=0)")


def load_model(filepath: Any, custom_optimizers: Sequence[type] | None = None, custom_objects: dict | None = None,
               compression=Compression.none, legacy_opts: bool = False) -> Any:
    """keras.models.load_model, whose model has a DistributedOptimizer with the saved optimizer's state.

    Args:
        custom_optimizers: classes of optimizers, which Keras does not have.
        custom_objects: what else Keras does not have, by name.
        legacy_opts: Horovod's; Keras 3 has no legacy optimizers.
    """
    if BACKEND == "tensorflow":
        from ..tensorflow import sync_batch_norm as sync_batch_norm  # so that Keras knows the layer

    known = {one.__name__: one for one in custom_optimizers or []}
    model = keras.models.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
    if getattr(model, "optimizer", None) is not None and not isinstance(model.optimizer, Distributed):
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression)
    return model
