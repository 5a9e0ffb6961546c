"""A small model trained with optax in several ways, and once more in one process on all of the data."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # JAX has one thread then: what might hang, does

import hashlib  # noqa: E402

import gradring.jax as gradring  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from report import say  # noqa: E402

STEPS, EACH = 4, 8
gradring.init()
rank, size = gradring.rank(), gradring.size()
MINE = slice(rank * EACH, (rank + 1) * EACH)
generator = np.random.default_rng(7)
BATCHES = [(generator.standard_normal((EACH * size, 20)).astype(np.float32), generator.integers(0, 5, EACH * size))
           for _ in range(STEPS)]


def parameters(seed):
    made = np.random.default_rng(seed)
    return {f"layer {i}": {"w": jnp.asarray(made.standard_normal(shape) / 5, jnp.float32), "b": jnp.zeros(shape[1])}
            for i, shape in enumerate([(20, 64), (64, 64), (64, 5)])}


def loss(params, data, labels):
    *hidden, last = params.values()
    for layer in hidden:
        data = jax.nn.relu(data @ layer["w"] + layer["b"])
    return optax.softmax_cross_entropy_with_integer_labels(data @ last["w"] + last["b"], labels).mean()


def train(optimizer, params, share, compiled=True):
    def step(params, state, data, labels):
        updates, state = optimizer.update(jax.grad(loss)(params, data, labels), state, params)
        return optax.apply_updates(params, updates), state
    step = jax.jit(step) if compiled else step
    state = optimizer.init(params)
    for data, labels in BATCHES:
        params, state = step(params, state, data[share], labels[share])
    return params


def differentiated(params):
    """The loss is the mean of all ranks' losses; its gradient, as each rank has it, is still that of its own part."""
    def mean_loss(params, data, labels):
        return gradring.allreduce(loss(params, data, labels))

    @jax.jit
    def step(params, data, labels):
        gradients = jax.grad(mean_loss)(params, data, labels)
        return jax.tree.map(lambda one, by: one - 0.1 * by, params, gradring.allreduce(gradients))
    for data, labels in BATCHES:
        params = step(params, data[MINE], labels[MINE])
    return params


def flat(params):
    return np.concatenate([np.asarray(one).reshape(-1) for one in jax.tree.leaves(params)])


adam, sgd = optax.adamw(1e-3), optax.sgd(0.1)
average = gradring.average_gradients
WAYS = {
    "compiled": (optax.chain(average(), adam), adam, True),
    "not compiled": (optax.chain(average(gradring.Sum, "gradients", 1 / size), sgd), sgd, False),
    "every second step": (optax.MultiSteps(optax.chain(average(), adam), 2), optax.MultiSteps(adam, 2), True),
}
for way, (optimizer, alone, compiled) in WAYS.items():
    begun = gradring.broadcast_parameters(parameters(rank))
    trained = flat(train(optimizer, begun, MINE, compiled))
    expected = flat(train(alone, parameters(0), slice(None)))
    say(way=way, digest=hashlib.sha256(trained.tobytes()).hexdigest(), off=float(np.abs(trained - expected).max()))
trained, expected = flat(differentiated(parameters(0))), flat(train(sgd, parameters(0), slice(None)))
say(way="differentiated", digest=hashlib.sha256(trained.tobytes()).hexdigest(),
    off=float(np.abs(trained - expected).max()))

exchanged = jax.jit(lambda some: [one * 2 for one in gradring.allreduce([one * 0.5 for one in some])])
large = [jnp.full((1 << 18,), float(rank)) for _ in range(3)]
for _ in range(10):  # of which none is waited for
    large = [one / one.max() for one in exchanged(large)]
say(way="large arrays in a row", digest="", off=float(max(jnp.abs(one - 1).max() for one in large)))
gradring.shutdown()
