"""gradring for PyTorch.

Importing this module makes "gradring" a backend of torch.distributed:

    import gradring.torch
    torch.distributed.init_process_group("gradring")

Everything else of a DDP script stays as it is. It also has Horovod's names:

    import gradring.torch as hvd
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
"""

import torch.distributed

from .. import common as _common
from ..common import *  # noqa: F403
from . import elastic, schedules
from .autograd import (allgather, allreduce, alltoall, broadcast, grouped_allgather, grouped_allreduce,
                       grouped_reducescatter, reducescatter)
from .compression import Compression
from .functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from .hooks import allreduce_hook, bf16_wire_hook, fp16_wire_hook
from .metrics import average_metrics
from .ops import (allgather_async, allreduce_, allreduce_async, allreduce_async_, alltoall_async, barrier, broadcast_,
                  broadcast_async, broadcast_async_, grouped_allgather_async, grouped_allreduce_,
                  grouped_allreduce_async, grouped_allreduce_async_, grouped_reducescatter_async, join, poll,
                  reducescatter_async, sparse_allreduce_async, synchronize)
from .optimizer import DistributedOptimizer
from .pool import keep_buckets_in, mem_pool
from .process_group import ProcessGroup
from .rendezvous import create
from .sync_batch_norm import SyncBatchNorm

__all__ = [
    "BACKEND", "Compression", "DistributedOptimizer", "ProcessGroup", "SyncBatchNorm",
    "allgather", "allgather_async", "allgather_object", "allreduce", "allreduce_", "allreduce_async",
    "allreduce_async_", "allreduce_hook", "alltoall", "alltoall_async", "average_metrics", "barrier",
    "bf16_wire_hook", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_", "broadcast_object",
    "broadcast_optimizer_state", "broadcast_parameters", "elastic", "fp16_wire_hook", "grouped_allgather",
    "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async", "join", "keep_buckets_in",
    "mem_pool", "poll", "reducescatter", "reducescatter_async", "schedules", "sparse_allreduce_async", "synchronize",
]
__all__ += _common.__all__

BACKEND = "gradring"


def _register():
    known = getattr(torch.distributed.Backend, "_plugins", {})
    if BACKEND.upper() not in known:  # the module may be reloaded, as notebooks do
        torch.distributed.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu", "cuda", "xpu"])


_register()
