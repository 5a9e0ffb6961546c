"""A rank's place in the job, as values that are looked up when a graph runs, not when it is built."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from .. import process_sets, world
from ..process_sets import ProcessSet
from .bridge import run

NOT_INITIALIZED = -1
NO_SUCH_SET = -2


def _now(what, name):
    """An int32."""
    return run(lambda: [np.int32(what())], [], [tf.int32], [[]], name or "gradring_standing")[0]


def rank_op(name: str | None = None) -> tf.Tensor:
    return _now(world.rank, name)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    return _now(world.local_rank, name)


def local_size_op(name: str | None = None) -> tf.Tensor:
    return _now(world.local_size, name)


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Of the job, or of a process set of it."""
    return _now(lambda: process_sets.process_set_of(process_set_id).size() if process_set_id else world.size(), name)


def size_of(process_set: ProcessSet) -> tf.Tensor:
    """How many ranks are in it; of all ranks of an elastic job, there may be others each time."""
    return _now(process_set.size, None)


def rank_in(process_set: ProcessSet) -> tf.Tensor:
    """This rank's number in it. It must be in it."""
    return _now(process_set.rank, None)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """1 where this rank is in the set, 0 where not, -1 before init(), -2 where there is no such set."""
    def included():
        if not world.is_initialized():
            return NOT_INITIALIZED
        try:
            return process_sets.process_set_of(process_set_id).included()
        except ValueError:
            return NO_SUCH_SET
    return _now(included, name)
