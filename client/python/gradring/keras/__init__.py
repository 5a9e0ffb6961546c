"""gradring for Keras 3, with Horovod's names:

    import gradring.keras as hvd
    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size())), ...)
    model.fit(..., callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

from .. import common as _common
from ..common import *  # noqa: F403
from . import callbacks, elastic
from .backends import Compression
from .functions import (allgather, allreduce, broadcast, broadcast_global_variables, broadcast_variables, load_model,
                        reducescatter)
from .optimizer import DistributedOptimizer, PartialDistributedOptimizer

__all__ = [
    "Compression", "DistributedOptimizer", "PartialDistributedOptimizer", "allgather", "allreduce",
    "broadcast", "broadcast_global_variables", "broadcast_variables", "callbacks", "elastic", "load_model",
    "reducescatter",
]
__all__ += _common.__all__
