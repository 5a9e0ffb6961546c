"""Horovod's operations on tf.Tensor, tf.Variable and tf.IndexedSlices, eager and in graphs, with gradients.

`name` matches an op with the others' of that name. Ops without a name are matched by their place in the program where
TensorFlow is eager, and among the ops of their graph elsewhere, which all ranks must build in the same order.
`ignore_name_scope` is Horovod's; scopes never count here. `process_set`: the ranks that take part. `device_dense`,
`device_sparse`: where results lie; values travel by way of the CPU's memory.

Eagerly they raise GradringError where an op fails, naming whom to blame; a graph raises tf.errors.UnknownError with the
same text. ValueError, TypeError or NotImplementedError for arguments that make no sense.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np
import tensorflow as tf

from .. import exchange
from .. import ops as array_ops
from ..process_sets import ProcessSet, global_process_set
from ..reduce_ops import Adasum, Average, Sum, chosen
from . import differentiable
from .bridge import name_for, run
from .compression import Compression
from .standing import size_of


def allreduce(tensor, average: bool | None = None, device_dense: str = "", device_sparse: str = "",
              compression=Compression.none, op=None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              name: str | None = None, process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False):
    """The tensors of all ranks in one, of the same shape and type; `op`: Average (the default), Sum, Min, Max, Product,
    Adasum. Of tf.IndexedSlices the rows of all ranks, for Sum and Average alone."""
    return grouped_allreduce([tensor], average, device_dense, device_sparse, compression, op, prescale_factor,
                             postscale_factor, process_set, ignore_name_scope, name)[0]


def grouped_allreduce(tensors: Sequence, average: bool | None = None, device_dense: str = "", device_sparse: str = "",
                      compression=Compression.none, op=None, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
                      ignore_name_scope: bool = False, name: str | None = None) -> list:
    """allreduce of several tensors, which are handed over at once, and are done together."""
    if not tensors:
        return tensors
    op = chosen(op, average)
    results = list(tensors)
    sparse = [i for i, one in enumerate(tensors) if isinstance(one, tf.IndexedSlices)]
    dense = [i for i in range(len(tensors)) if i not in set(sparse)]
    if sparse:
        check_sparse(op, prescale_factor, postscale_factor)
        with tf.device(device_sparse):
            gathered = _gather_slices([tensors[i] for i in sparse], op, name, process_set)
        for i, one in zip(sparse, gathered, strict=True):
            results[i] = one
    if dense:
        with tf.device(device_dense):
            packed, contexts = zip(*(compression.compress(tf.convert_to_tensor(tensors[i])) for i in dense))
            full = name_for("allreduce", name)
            reduced = differentiable.allreduce(packed, op, prescale_factor, postscale_factor, full, process_set)
            for i, one, context in zip(dense, reduced, contexts, strict=True):
                results[i] = compression.decompress(one, context)
    return results


def check_sparse(op, prescale: float, postscale: float) -> None:
    if op is Adasum:
        raise NotImplementedError("gradring: Adasum of tf.IndexedSlices; make them dense with sparse_as_dense=True")
    if op not in (Average, Sum):
        raise NotImplementedError(f"gradring: allreduce of tf.IndexedSlices with {op}; it takes Sum and Average")
    if prescale != 1.0 or postscale != 1.0:
        raise NotImplementedError("gradring: allreduce of tf.IndexedSlices takes no prescale_factor, postscale_factor "
                                  "or gradient_predivide_factor; make them dense with sparse_as_dense=True")


def _gather_slices(slices, op, name, process_set):
    parts = [part for one in slices for part in (one.values, one.indices)]
    full = name_for("allgather", name)
    gathered = differentiable.allgather(parts, full, process_set)
    if op == Average:
        size = size_of(process_set)
        gathered[::2] = [values / tf.cast(size, values.dtype) for values in gathered[::2]]
    return [tf.IndexedSlices(gathered[2 * i], gathered[2 * i + 1], dense_shape=one.dense_shape)
            for i, one in enumerate(slices)]


def allgather(tensor, name: str | None = None, ignore_name_scope: bool = False,
              process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """The rows of all ranks, one below the other in the order of ranks; they may have different numbers of them."""
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


def grouped_allgather(tensors: Sequence, name: str | None = None, ignore_name_scope: bool = False,
                      process_set: ProcessSet = global_process_set) -> list:
    """allgather of several tensors at once."""
    tensors = [tf.convert_to_tensor(one) for one in tensors]
    return differentiable.allgather(tensors, name_for("allgather", name), process_set)


def broadcast(tensor, root_rank: int, name: str | None = None, ignore_name_scope: bool = False,
              process_set: ProcessSet = global_process_set) -> tf.Tensor:
    """The root's tensor, on all ranks; theirs must have its shape and type. `root_rank`: of the whole job."""
    tensors = [tf.convert_to_tensor(tensor)]
    full = name_for("broadcast", name)
    return differentiable.broadcast(tensors, root_rank, full, process_set)[0]


def broadcast_(variables: Sequence, root_rank: int, name: str | None = None,
               process_set: ProcessSet = global_process_set) -> list:
    """Gives the variables the root's values. Result: the values, after the assignments."""
    values = [tf.convert_to_tensor(one) for one in variables]
    if not values:
        return []
    full = name_for("broadcast", name)
    results = run(lambda *arrays: differentiable.broadcast_arrays(arrays, root_rank, full, process_set), values,
                  [one.dtype for one in values], [one.shape for one in values], "gradring_broadcast")
    assignments = [one.assign(value) for one, value in zip(variables, results, strict=True)]
    with tf.control_dependencies([] if tf.executing_eagerly() else [one for one in assignments if one is not None]):
        return [tf.convert_to_tensor(one) if tf.executing_eagerly() else tf.identity(one) for one in variables]


def alltoall(tensor, splits=None, name: str | None = None, ignore_name_scope: bool = False,
             process_set: ProcessSet = global_process_set):
    """The rows that the others have for this rank, in the order of ranks. `splits[r]`: how many of its rows are rank
    r's; then the result is (rows, how many each rank had)."""
    tensor = tf.convert_to_tensor(tensor)
    splits = None if splits is None else tf.convert_to_tensor(splits)
    if splits is not None and (not splits.dtype.is_integer or splits.shape.rank not in (1, None)):
        raise ValueError(f"gradring: the splits of alltoall are a list of numbers of rows, not {splits}")
    full = name_for("alltoall", name)
    rows, received = differentiable.alltoall(tensor, splits, full, process_set)
    return rows if splits is None else (rows, received)


def reducescatter(tensor, device_dense: str = "", compression=Compression.none, op=Average, name: str | None = None,
                  process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False,
                  prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> tf.Tensor:
    """This rank's rows of the sum, or Average; where rows cannot be shared out evenly the first ranks have one more."""
    return _reducescatter([tensor], device_dense, compression, op, name, process_set, prescale_factor,
                          postscale_factor)[0]


def grouped_reducescatter(tensors: Sequence, device_dense: str = "", compression=Compression.none, op=Average,
                          process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> list:
    """reducescatter of several tensors at once."""
    if not tensors:
        return tensors
    return _reducescatter(tensors, device_dense, compression, op, None, process_set, prescale_factor, postscale_factor)


def _reducescatter(tensors, device, compression, op, name, process_set, prescale, postscale):
    with tf.device(device):
        packed, contexts = zip(*(compression.compress(tf.convert_to_tensor(one)) for one in tensors))
        full = name_for("reducescatter", name)
        reduced = differentiable.reducescatter(packed, op, prescale, postscale, full, process_set)
        return [compression.decompress(one, context) for one, context in zip(reduced, contexts, strict=True)]


def join(device: int = -1) -> tf.Tensor:
    """This rank has no more data: until all ranks have called this, it takes part in their ops with values that change
    nothing. Result: the rank that was last, an int32. `device` is Horovod's, and means nothing here."""
    return run(lambda: [np.int32(array_ops.join(device))], [], [tf.int32], [[]], "gradring_join")[0]


def barrier(process_set: ProcessSet = global_process_set):
    """Returns when all ranks have called it. In a graph, a number that is there then."""
    def work():
        exchange.barrier(process_set=process_set).wait()
        return [np.int32(0)]
    done = run(work, [], [tf.int32], [[]], "gradring_barrier")[0]
    return None if tf.executing_eagerly() else done
