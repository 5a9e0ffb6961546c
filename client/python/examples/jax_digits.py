"""A classifier of handwritten digits, trained with JAX and optax.

    gradring-run -np 4 python3 jax_digits.py
"""

import argparse
from pathlib import Path

import gradring.jax
import jax
import jax.numpy as jnp
import numpy as np
import optax

DIGITS = Path(__file__).parents[2] / "examples/data/digits.csv"  # 64 grey values, then the digit they show

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch", type=int, default=64, help="of all ranks together")
parser.add_argument("--weights", help="where each rank puts its weights, as FILE.RANK.npy")
args = parser.parse_args()

gradring.jax.init()
rank, size = gradring.jax.rank(), gradring.jax.size()

table = np.loadtxt(DIGITS, delimiter=",", dtype=np.float32)
images, labels = table[:, :64] / 16, table[:, 64].astype(np.int32)
train, test = slice(0, 1536), slice(1536, None)


def logits(params, images):
    return jax.nn.relu(images @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


def loss_of(params, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, images), labels).mean()


@jax.jit
def train_step(params, state, images, labels):
    loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)
    updates, state = optimizer.update(gradients, state, params)  # all ranks' gradients become one here
    return optax.apply_updates(params, updates), state, loss


first, second = jax.random.split(jax.random.key(0))
params = {"w1": jax.random.normal(first, (64, 128)) / 8, "b1": jnp.zeros(128),
          "w2": jax.random.normal(second, (128, 10)) / 11, "b2": jnp.zeros(10)}
params = gradring.jax.broadcast_parameters(params)
optimizer = optax.chain(gradring.jax.average_gradients(), optax.sgd(0.1, momentum=0.9))
state = optimizer.init(params)

share = args.batch // size
for epoch in range(args.epochs):
    order = np.random.default_rng(epoch).permutation(len(images[train]))
    losses = []
    for begin in range(0, len(order), args.batch):
        mine = order[begin + rank * share:begin + (rank + 1) * share]
        params, state, loss = train_step(params, state, images[mine], labels[mine])
        losses.append(loss)
    loss = gradring.jax.allreduce(jnp.stack(losses)).mean()
    right = (logits(params, images[test]).argmax(1) == labels[test]).mean()
    if rank == 0:
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {right:.3f}", flush=True)

if args.weights:
    np.save(f"{args.weights}.{rank}.npy", np.concatenate([np.asarray(one).ravel() for one in params.values()]))
gradring.jax.shutdown()
