"""Gradient exchange through the node's daemon, gradringd.

    import gradring
    gradring.init()
    mean = gradring.allreduce(array)

Arrays are NumPy's, or anything that speaks DLPack or the buffer protocol. gradring.torch is for PyTorch.
"""

from . import loader  # isort: skip  (before all that needs what it loads)
from . import elastic, uncaught
from ._native import Cause, Code, Dtype, ReduceOp, Wire, version
from .batches import batches
from .built import (ccl_built, cuda_built, ddl_built, gloo_built, gloo_enabled, mpi_built, mpi_enabled,
                    mpi_threads_supported, nccl_built, rocm_built)
from .errors import GradringError, HorovodInternalError
from .handles import Handle, poll, synchronize
from .launcher import run
from .lifecycle import init, shutdown
from .objects import allgather_object, broadcast_object
from .ops import (allgather, allgather_async, allreduce, allreduce_async, alltoall, alltoall_async, barrier, broadcast,
                  broadcast_async, empty, grouped_allgather, grouped_allgather_async, grouped_allreduce,
                  grouped_allreduce_async, grouped_reducescatter, grouped_reducescatter_async, join, reducescatter,
                  reducescatter_async)
from .process_sets import ProcessSet, add_process_set, global_process_set, process_set_ids, remove_process_set
from .reduce_ops import Adasum, Average, Max, Min, Product, Sum
from .timeline import start_timeline, stop_timeline
from .world import cross_rank, cross_size, is_homogeneous, is_initialized, local_rank, local_size, rank, size

__version__ = version()

# Names that every front end has.
COMMON = [
    "Adasum", "Average", "GradringError", "HorovodInternalError", "Max", "Min", "ProcessSet", "Product", "Sum",
    "add_process_set", "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "global_process_set",
    "gloo_built", "gloo_enabled", "init", "is_homogeneous", "is_initialized", "local_rank", "local_size", "mpi_built",
    "mpi_enabled", "mpi_threads_supported", "nccl_built", "process_set_ids", "rank", "remove_process_set", "rocm_built",
    "shutdown", "size", "start_timeline", "stop_timeline",
]
__all__ = [
    *COMMON, "batches", "Cause", "Code", "Dtype", "Handle", "ReduceOp", "Wire", "allgather", "allgather_async", "allgather_object",
    "allreduce", "allreduce_async", "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_async",
    "broadcast_object", "elastic", "empty", "grouped_allgather", "grouped_allgather_async", "grouped_allreduce",
    "grouped_allreduce_async", "grouped_reducescatter", "grouped_reducescatter_async", "join", "poll", "reducescatter",
    "reducescatter_async", "run", "synchronize", "version",
]
