"""gradring for TensorFlow, with Horovod's names:

    import gradring.tensorflow as hvd
    hvd.init()
    tape = hvd.DistributedGradientTape(tape)

gradring.keras, or gradring.tensorflow.keras, is for Keras.
"""

import importlib

from .. import common as _common
from ..common import *  # noqa: F403
from . import compression, elastic
from .compression import Compression
from .functions import (allgather_object, broadcast_global_variables, broadcast_object, broadcast_object_fn,
                        broadcast_variables)
from .hooks import BroadcastGlobalVariablesHook
from .ops import (allgather, allreduce, alltoall, barrier, broadcast, broadcast_, grouped_allgather, grouped_allreduce,
                  grouped_reducescatter, join, reducescatter)
from .optimizer import DistributedOptimizer
from .standing import local_rank_op, local_size_op, process_set_included_op, rank_op, size_op
from .tape import DistributedGradientTape, PartialDistributedGradientTape

__all__ = [
    "BroadcastGlobalVariablesHook", "Compression", "DistributedGradientTape", "DistributedOptimizer",
    "PartialDistributedGradientTape", "SyncBatchNormalization", "allgather", "allgather_object", "allreduce",
    "alltoall", "barrier", "broadcast", "broadcast_", "broadcast_global_variables", "broadcast_object",
    "broadcast_object_fn", "broadcast_variables", "compression", "elastic", "grouped_allgather", "grouped_allreduce",
    "grouped_reducescatter", "join", "local_rank_op", "local_size_op", "process_set_included_op", "rank_op",
    "reducescatter", "size_op",
]
__all__ += _common.__all__


def __getattr__(name):
    # Keras takes seconds to import, and scripts of TensorFlow 1 do without it.
    if name == "keras":
        return importlib.import_module(".keras", __name__)
    if name == "SyncBatchNormalization":
        return importlib.import_module(".sync_batch_norm", __name__).SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
