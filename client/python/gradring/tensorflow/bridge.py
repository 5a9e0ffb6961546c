"""From TensorFlow to NumPy and back: at once where TensorFlow is eager, as one operation of the graph where it is not.

Arrays are views of tensors on the CPU, and results that lie in aligned memory become tensors as they are.
"""

from __future__ import annotations

import collections
import hashlib
import os
import threading
import weakref
from typing import Callable, Sequence

import numpy as np
import tensorflow as tf

from .. import ops as array_ops
from ..arrays import NO_NUMBERS, Arrays, as_array
from .failures import noted

_ALIGNMENT = 64  # of memory that TensorFlow takes as it is; its kernels abort on less
_SHARED_FROM = 64 * 1024  # bytes; smaller results cost less to copy than to place on pages of their own


class _Kept(Arrays):
    """The Frontend of arrays whose results a user may keep."""

    def empty(self, shape, like):
        dtype = as_array(like).dtype
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        memory = np.empty(size + _ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % _ALIGNMENT
        return memory[start:start + size].view(dtype).reshape(shape)


class _Passing(_Kept):
    """The Frontend of arrays whose results are soon gone, such as gradients: they lie in the daemon's memory. What a
    user may keep must not: memory in use stays the daemon's after shutdown()."""

    def empty(self, shape, like):
        dtype = as_array(like).dtype
        if int(np.prod(shape, dtype=np.int64)) * dtype.itemsize < _SHARED_FROM:
            return super().empty(shape, like)
        return array_ops.empty(shape, dtype)


KEPT = _Kept()
PASSING = _Passing()

_THREADS = "TF_NUM_INTEROP_THREADS"
_asked: list[str | None] = [None]  # what it was set to here, op by op

Work = Callable[..., Sequence[np.ndarray]]


def run(work: Work, tensors: Sequence[tf.Tensor], dtypes: Sequence[tf.DType], shapes: Sequence, name: str) -> list:
    """What `work` makes of the tensors' arrays, as tensors. `work` is called once for each time that the result is
    needed, and may look at the job then; in a graph it runs on one of TensorFlow's threads.

    Raises, when eager, what `work` does; in a graph tf.errors.UnknownError with the text of it.
    """
    if tf.executing_eagerly():
        results = work(*(as_array(one) for one in tensors))
        return [_tensor_of(result, dtype) for result, dtype in zip(results, dtypes, strict=True)]
    for one in tensors:
        if one.dtype.name in NO_NUMBERS:  # now: TensorFlow would hand over a string's bytes, which are numbers
            raise TypeError(f"gradring cannot move {one.dtype.name}")
    _make_room_for_waiting()
    noting = noted(work)
    results = tf.numpy_function(lambda *arrays: list(noting(*arrays)), list(tensors), list(dtypes), name=name)
    for result, shape in zip(results, shapes, strict=True):
        result.set_shape(shape)
    return list(results)


def _make_room_for_waiting() -> None:
    """An op that waits occupies a thread. In a tf.function one runs after the other, but in a graph of TensorFlow 1
    ranks may begin with different ones, and wait for ever where there are too few threads to begin all of them. Without
    settings of the user's own, TensorFlow asks the environment for their number, once, when it first runs anything."""
    if tf.compat.v1.executing_eagerly_outside_functions() or os.environ.get(_THREADS, _asked[-1]) != _asked[-1]:
        return
    _asked.append(str((os.cpu_count() or 1) + len(_asked)))
    os.environ[_THREADS] = _asked[-1]


def _tensor_of(result, dtype):
    if isinstance(result, np.ndarray) and result.nbytes and result.ctypes.data % _ALIGNMENT == 0:
        try:
            return tf.experimental.dlpack.from_dlpack(result.__dlpack__())
        except (BufferError, RuntimeError, TypeError):
            pass  # types that DLPack does not have
    return tf.convert_to_tensor(result, dtype)


def name_for(kind: str, name: str | None) -> str | None:
    """By which the op finds its like on other ranks. Eager ops without a name are matched by their place in the
    program (None). Those of a graph may run in any order, so they are counted as the graph is built, which all ranks do
    alike. Tensors' names and scopes do not count: models, and what else is in graphs, may have others on each rank."""
    name = None if name is None else str(name)  # a number too, as for other frameworks' ops
    if tf.executing_eagerly():
        return _short(name)
    graph = _outermost_graph()
    with _lock:
        counts = _built.setdefault(graph, collections.Counter())
        number = counts[name or kind]
        counts[name or kind] += 1
    full = name or f"{getattr(graph, 'name', 'graph')}/{kind}"
    return _short(f"{full}#{number}" if number else full)


_lock = threading.Lock()
_built: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # of graphs, how many ops of each kind they have


def _outermost_graph():
    """Whose name is the same on all ranks: those of branches and loops inside have numbers that count whatever the
    process has built. And what is counted begins anew with it, as one rank may trace a function once more."""
    graph = tf.compat.v1.get_default_graph()
    while hasattr(graph, "outer_graph"):
        outer = graph.outer_graph
        if not hasattr(outer, "outer_graph") and tf.compat.v1.executing_eagerly_outside_functions():
            break  # that is TensorFlow's own, which eager code does not build
        graph = outer
    return graph


def _short(name):
    if name is None or len(name.encode()) <= 200:
        return name
    return f"{name[:100]}#{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}"
