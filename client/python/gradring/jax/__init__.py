"""gradring for JAX.

    import gradring.jax
    gradring.jax.init()
    optimizer = optax.chain(gradring.jax.average_gradients(), optax.adam(1e-3))
    params = gradring.jax.broadcast_parameters(params)

The ops take arrays and pytrees of them, inside jax.jit and outside of it. Import it before the first computation: it
makes JAX run computations on the CPU when they are called, without which an op inside jax.jit may hang.
"""

import gradring as _gradring

from .host import shutdown
from .ops import allgather, allreduce, alltoall, barrier, broadcast, grouped_allreduce, reducescatter
from .training import average_gradients, broadcast_parameters

for _name in set(_gradring.COMMON) - {"shutdown"}:
    globals()[_name] = getattr(_gradring, _name)

__all__ = [
    *_gradring.COMMON, "allgather", "allreduce", "alltoall", "average_gradients", "barrier", "broadcast",
    "broadcast_parameters", "grouped_allreduce", "reducescatter",
]
