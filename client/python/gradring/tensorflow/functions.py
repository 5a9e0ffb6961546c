"""Variables and Python objects to and from all ranks."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow as tf

from .. import objects
from ..process_sets import ProcessSet, global_process_set
from .ops import broadcast_


def broadcast_variables(variables: Sequence, root_rank: int, process_set: ProcessSet = global_process_set,
                        inplace: bool = False) -> Any:
    """Gives the variables the root's values. In a graph of TensorFlow 1 the result is the operation that does it.
    `inplace` is Horovod's: nothing here depends on it."""
    with tf.name_scope("broadcast_variables"):
        values = broadcast_(list(variables), root_rank, process_set=process_set)
        return None if tf.executing_eagerly() else tf.group(*values)


def broadcast_global_variables(root_rank: int) -> tf.Operation:
    """The operation that gives all variables of the graph the root's values. Raises RuntimeError outside of graphs."""
    if tf.executing_eagerly():
        raise RuntimeError("gradring: broadcast_global_variables() is for graphs of TensorFlow 1; use "
                           "broadcast_variables(model.variables, root_rank=0)")
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def broadcast_object(obj: Any = None, root_rank: int = 0, session=None, name: str | None = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """The root's object, on all ranks, pickled. Needs no session, and is done at once in graphs as well."""
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(root_rank: int = 0, session=None, name: str | None = None,
                        process_set: ProcessSet = global_process_set) -> Callable[[Any], Any]:
    """A function that broadcasts the object it is given."""
    return lambda obj=None: objects.broadcast_object(obj, root_rank, name or "broadcast_object_fn", process_set)


def allgather_object(obj: Any, session=None, name: str | None = None,
                     process_set: ProcessSet = global_process_set) -> list:
    """The objects of all ranks, in their order."""
    return objects.allgather_object(obj, name, process_set)
