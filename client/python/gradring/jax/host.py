"""From JAX to NumPy and back: at once, or by a callback where a function is being traced."""

from __future__ import annotations

import atexit
import warnings
from typing import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from .. import lifecycle
from ..errors import GradringError, found_by
from ..raised_inside import behind, noted

# A callback's arguments are copied by the threads that also run computations. With one thread, which waits in the
# callback for its own arguments, that is for ever; with computations run by their callers it cannot be.
_SETTING = "jax_cpu_enable_async_dispatch"


def run_computations_where_they_are_called() -> None:
    try:
        from jax._src.xla_bridge import backends_are_initialized
    except ImportError:
        def backends_are_initialized():
            return False
    if getattr(jax.config, _SETTING, True) and backends_are_initialized():
        warnings.warn(f"gradring.jax was imported after JAX's first computation. Ops inside jax.jit may hang on CPUs: "
                      f"import it earlier, or set {_SETTING.upper()}=false", stacklevel=4)
    jax.config.update(_SETTING, False)


run_computations_where_they_are_called()


def on_host(function: Callable[[list[np.ndarray]], list[np.ndarray]], leaves: Sequence,
            shapes: Callable[[list], list]) -> list:
    """What `function` makes of the arrays. `shapes(leaves)`: what it will, needed only while a function is traced.

    Raises NotImplementedError inside shard_map and pmap, and for arrays of which other processes have parts.
    """
    leaves = [jnp.asarray(one) for one in leaves]
    if any(jnp.issubdtype(one.dtype, jax.dtypes.prng_key) for one in leaves):
        raise TypeError("gradring cannot move keys of jax.random: exchange jax.random.key_data(key), and make a key of what "
                        "comes by jax.random.wrap_key_data()")
    if _tracing(leaves):
        _refuse_shards()
        return list(io_callback(noted(lambda *arrays: function([np.asarray(one) for one in arrays])), shapes(leaves),
                                *leaves, ordered=True))
    for one in leaves:
        if not one.is_fully_addressable:
            raise NotImplementedError("gradring: an array of which other processes have parts (jax.distributed); "
                                      "gradring exchanges what each process has on its own")
    jax.effects_barrier()  # ops that jitted functions have under way come first, on all ranks
    results = function([np.asarray(one) for one in leaves])
    given = leaves if len(leaves) == len(results) else [None] * len(results)
    return [_like(result, one) for result, one in zip(results, given)]


def _tracing(leaves) -> bool:
    # The last is for ops of constants, or of nothing.
    return any(isinstance(one, jax.core.Tracer) for one in [*leaves, jnp.zeros(())])


def _refuse_shards() -> None:
    axes = jax.sharding.get_abstract_mesh().manual_axes
    if axes:
        raise NotImplementedError(
            f"gradring: an op inside shard_map or pmap, over {axes}: each of this process's devices would take part as "
            "if it were a rank. Combine the shards first, with jax.lax.psum, and call gradring outside")


def _like(result: np.ndarray, given) -> jax.Array:
    if given is not None and given.committed and given.shape == result.shape:
        return jax.device_put(result, given.sharding)
    return jnp.asarray(result)


def _found(error: Exception) -> GradringError | None:
    return behind(str(error)) if isinstance(error, jax.errors.JaxRuntimeError) else None


found_by(_found)


def shutdown() -> None:
    """Leaves the job, once the ops of jitted functions are over."""
    jax.effects_barrier()
    lifecycle.shutdown()


atexit.register(jax.effects_barrier)  # runs before the package's own, which leaves the job
