"""What every front end has of the whole package."""

from .built import (ccl_built, cuda_built, ddl_built, gloo_built, gloo_enabled, mpi_built, mpi_enabled,
                    mpi_threads_supported, nccl_built, rocm_built)
from .errors import GradringError, HorovodInternalError
from .lifecycle import init, shutdown
from .process_sets import ProcessSet, add_process_set, global_process_set, process_set_ids, remove_process_set
from .reduce_ops import Adasum, Average, Max, Min, Product, Sum
from .timeline import start_timeline, stop_timeline
from .world import cross_rank, cross_size, is_homogeneous, is_initialized, local_rank, local_size, rank, size

__all__ = [
    "Adasum", "Average", "GradringError", "HorovodInternalError", "Max", "Min", "ProcessSet", "Product", "Sum",
    "add_process_set", "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "global_process_set",
    "gloo_built", "gloo_enabled", "init", "is_homogeneous", "is_initialized", "local_rank", "local_size", "mpi_built",
    "mpi_enabled", "mpi_threads_supported", "nccl_built", "process_set_ids", "rank", "remove_process_set", "rocm_built",
    "shutdown", "size", "start_timeline", "stop_timeline",
]
