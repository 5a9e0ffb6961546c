"""The collectives on lists of dense tensors, as one operation each, through which gradients flow.

Gradients are what Horovod has: of an average, the average of the others' gradients; of what was gathered or broadcast,
the average of what all ranks send back.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np
import tensorflow as tf

from .. import exchange
from ..process_sets import ProcessSet
from ..reduce_ops import Average, Sum
from .bridge import KEPT, name_for, run
from .standing import rank_in, rank_op, size_of

Tensors = Sequence[tf.Tensor]


def allreduce(tensors: Tensors, op, prescale: float, postscale: float, name: str | None,
              process_set: ProcessSet) -> list:
    def work(*arrays):
        return exchange.allreduce(KEPT, arrays, op=op, name=name, prescale=prescale, postscale=postscale,
                                  process_set=process_set).wait()

    @tf.custom_gradient
    def through(*values):
        def backward(*upstream):
            if op not in (Average, Sum):
                raise NotImplementedError(f"gradring: allreduce with {op} has no gradient; Average and Sum have")
            again = name_for("allreduce_gradient", None)
            return allreduce(upstream, op, prescale, postscale, again, process_set)
        return run(work, values, _types(values), _shapes(values), "gradring_allreduce"), backward
    return list(through(*tensors))


def reducescatter(tensors: Tensors, op, prescale: float, postscale: float, name: str | None,
                  process_set: ProcessSet) -> list:
    def work(*arrays):
        return exchange.reducescatter(KEPT, arrays, op=op, name=name, prescale=prescale, postscale=postscale,
                                      process_set=process_set).wait()

    @tf.custom_gradient
    def through(*values):
        def backward(*upstream):
            factor = prescale * postscale * (tf.cast(size_of(process_set), tf.float64) if op == Sum else 1)
            scaled = [one * tf.cast(factor, one.dtype) for one in upstream]
            return allgather(scaled, name_for("reducescatter_gradient", None), process_set)
        return run(work, values, _types(values), _any_rows(values), "gradring_reducescatter"), backward
    return list(through(*tensors))


def allgather(tensors: Tensors, name: str | None, process_set: ProcessSet) -> list:
    def work(*arrays):
        return exchange.allgather(KEPT, arrays, name=name, process_set=process_set, now=True).wait()

    @tf.custom_gradient
    def through(*values):
        def backward(*upstream):
            means = allreduce(upstream, Average, 1.0, 1.0, name_for("allgather_gradient", None), process_set)
            rows = tf.stack([tf.shape(one, tf.int64)[0] for one in values])[tf.newaxis]
            everybody = allgather([rows], name_for("allgather_rows", None), process_set)[0]
            starts = tf.reduce_sum(everybody[:rank_in(process_set)], axis=0)
            mine = [mean[starts[i]:starts[i] + rows[0, i]] for i, mean in enumerate(means)]
            for one, value in zip(mine, values, strict=True):
                one.set_shape(value.shape)
            return mine
        return run(work, values, _types(values), _any_rows(values), "gradring_allgather"), backward
    return list(through(*tensors))


def broadcast(tensors: Tensors, root_rank: int, name: str | None, process_set: ProcessSet) -> list:
    def work(*arrays):
        return broadcast_arrays(arrays, root_rank, name, process_set)

    @tf.custom_gradient
    def through(*values):
        def backward(*upstream):
            means = allreduce(upstream, Average, 1.0, 1.0, name_for("broadcast_gradient", None), process_set)
            root = tf.equal(rank_op(), root_rank)
            return [tf.where(root, one, tf.zeros_like(one)) for one in means]
        return run(work, values, _types(values), _shapes(values), "gradring_broadcast"), backward
    return list(through(*tensors))


def alltoall(tensor: tf.Tensor, splits: tf.Tensor | None, name: str | None, process_set: ProcessSet) -> tuple:
    """The rows, and how many each rank had."""
    def work(array, *given):
        rows, received = exchange.alltoall(KEPT, array, *given, name=name, process_set=process_set, now=True).wait()
        return rows, np.asarray(received, np.int32)

    @tf.custom_gradient
    def through(value):
        given = [value] if splits is None else [value, splits]
        rows, received = run(work, given, [value.dtype, tf.int32], [*_any_rows([value]), [None]], "gradring_alltoall")

        def backward(upstream, _):
            return alltoall(upstream, received, name_for("alltoall_gradient", None), process_set)[0]
        return (rows, received), backward
    return through(tensor)


def broadcast_arrays(arrays: Sequence[np.ndarray], root_rank: int, name: str | None,
                     process_set: ProcessSet) -> list[np.ndarray]:
    """All of them under way at once."""
    names = [f"{name}/{i}" if name and len(arrays) > 1 else name for i in range(len(arrays))]
    handles = [exchange.broadcast(KEPT, array, root_rank=root_rank, name=one, process_set=process_set)
               for array, one in zip(arrays, names, strict=True)]
    return [handle.wait() for handle in handles]


def _types(tensors):
    return [one.dtype for one in tensors]


def _shapes(tensors):
    return [one.shape for one in tensors]


def _any_rows(tensors):
    """Of results that have as many rows as the other ranks say."""
    return [[None, *one.shape[1:]] if one.shape.rank else None for one in tensors]
