"""Sums in a compiled function until somebody dies. Rank 0 leaves the error to Python; the others say what it told them, leave
the job and go on alone."""

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import gradring.jax as gradring  # noqa: E402  (reads the line above)
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from report import say  # noqa: E402

gradring.init()


@jax.jit
def step(values):
    return jax.lax.fori_loop(0, 3, lambda _, one: gradring.allreduce(one), {"a": values, "b": values * 2})


values = jnp.ones(1000)
for number in range(100000):
    try:
        step(values)
    except jax.errors.JaxRuntimeError as told:
        if gradring.rank() == 0:
            raise
        text = str(told).strip().splitlines()[-1]
        break
    if number == 5:
        say(step=number)
try:
    step(values)
except jax.errors.JaxRuntimeError as told:
    again = str(told).strip().splitlines()[-1]
gradring.shutdown()
say(text=text, again=again, alone=float(jax.jit(jnp.sum)(values)))
sys.exit(0)
