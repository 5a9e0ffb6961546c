"""Python objects to and from all ranks, pickled."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from . import ops
from .pickling import dumps
from .process_sets import ProcessSet, global_process_set
from .world import rank


def broadcast_object(obj: Any = None, root_rank: int = 0, name: str | None = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """The root's object, on all ranks. Only what ranks of the same job sent is unpickled."""
    name = name or "object"  # not the object's type: other ranks may have another
    mine = rank() == root_rank
    pickled = np.frombuffer(dumps(obj), np.uint8) if mine else np.empty(0, np.uint8)
    size = ops.broadcast(np.array([pickled.size], np.int64), root_rank, f"{name}.size", process_set=process_set)
    if not mine:
        pickled = np.empty(int(size[0]), np.uint8)
    pickled = ops.broadcast(pickled, root_rank, f"{name}.pickled", process_set=process_set)
    return obj if mine else pickle.loads(pickled.tobytes())


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list:
    """The objects of all ranks, in their order."""
    name = name or "object"
    pickled = np.frombuffer(dumps(obj), np.uint8)
    sizes = ops.allgather(np.array([pickled.size], np.int64), f"{name}.sizes", process_set=process_set)
    everybody = ops.allgather(pickled, f"{name}.pickled", process_set=process_set)
    ends = np.cumsum(sizes)
    return [pickle.loads(everybody[end - size:end].tobytes()) for end, size in zip(ends, sizes, strict=True)]
