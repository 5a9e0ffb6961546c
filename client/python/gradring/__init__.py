"""Gradient exchange through the node's daemon, gradringd.

    import gradring
    gradring.init()
    mean = gradring.allreduce(array)

Arrays are NumPy's, or anything that speaks DLPack or the buffer protocol. gradring.torch is for PyTorch.
"""

from . import loader  # isort: skip  (before all that needs what it loads)
from . import common, elastic, uncaught
from ._native import Cause, Code, Dtype, ReduceOp, Wire, version
from .batches import batches
from .common import *  # noqa: F403
from .handles import Handle, poll, synchronize
from .launcher import run
from .objects import allgather_object, broadcast_object
from .ops import (allgather, allgather_async, allreduce, allreduce_async, alltoall, alltoall_async, barrier, broadcast,
                  broadcast_async, empty, grouped_allgather, grouped_allgather_async, grouped_allreduce,
                  grouped_allreduce_async, grouped_reducescatter, grouped_reducescatter_async, join, reducescatter,
                  reducescatter_async)

__version__ = version()

__all__ = [
    "Cause", "Code", "Dtype", "Handle", "ReduceOp", "Wire", "allgather", "allgather_async", "allgather_object",
    "allreduce", "allreduce_async", "alltoall", "alltoall_async", "barrier", "batches", "broadcast", "broadcast_async",
    "broadcast_object", "elastic", "empty", "grouped_allgather", "grouped_allgather_async", "grouped_allreduce",
    "grouped_allreduce_async", "grouped_reducescatter", "grouped_reducescatter_async", "join", "poll", "reducescatter",
    "reducescatter_async", "run", "synchronize", "version",
]
__all__ += common.__all__  # written so that type checkers follow it
