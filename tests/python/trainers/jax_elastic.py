"""Elastic training whose ops are in a compiled function, in which the others are when rank 1 goes back alone. STORE STEPS; says the
weights at the end."""

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import gradring.jax as gradring  # noqa: E402  (reads the line above)
import jax  # noqa: E402
import numpy as np  # noqa: E402
from gradring.elastic import HorovodInternalError, ObjectState, run  # noqa: E402
from report import say  # noqa: E402

STEPS = int(sys.argv[2])
gradring.init(policy="elastic min=1")
points = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)
goals = points @ np.array([1, 2, 3, 4], np.float32)
resets = []


@jax.jit
def step(weights, factor):
    gradients = jax.grad(lambda one: ((points @ one - goals) ** 2).mean())(weights)
    return weights - 0.05 * gradring.allreduce(gradients * factor)


@run
def train(state):
    while state.step < STEPS:
        if gradring.rank() == 1 and state.step == STEPS // 2 and not resets:
            raise HorovodInternalError("of this rank alone")
        state.weights = step(state.weights, 1.0 + gradring.rank())
        state.step += 1
        state.commit()


# Each begins elsewhere, so that only the sync makes them alike.
state = ObjectState(weights=np.full(4, gradring.rank(), np.float32), step=0)
state.register_reset_callbacks([lambda: resets.append(gradring.size())])
train(state)
say(weights=[float(one) for one in state.weights], resets=resets, step=state.step)
