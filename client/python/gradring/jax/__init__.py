"""gradring for JAX.

    import gradring.jax
    gradring.jax.init()
    optimizer = optax.chain(gradring.jax.average_gradients(), optax.adam(1e-3))
    params = gradring.jax.broadcast_parameters(params)

The ops take arrays and pytrees of them, inside jax.jit and outside of it. Import it before the first computation: it
makes JAX run computations on the CPU when they are called, without which an op inside jax.jit may hang.
"""

from .. import common as _common
from ..common import *  # noqa: F403
from .host import shutdown
from .ops import allgather, allreduce, alltoall, barrier, broadcast, grouped_allreduce, reducescatter
from .training import average_gradients, broadcast_parameters

__all__ = [
    "allgather", "allreduce", "alltoall", "average_gradients", "barrier", "broadcast",
    "broadcast_parameters", "grouped_allreduce", "reducescatter",
]
__all__ += _common.__all__
