"""A classifier of handwritten digits in NumPy alone: what any framework does that gives its gradients out as arrays.

    gradring-run -np 4 python3 numpy_sgd.py
"""

import argparse
from pathlib import Path

import gradring
import numpy as np

DIGITS = Path(__file__).parents[2] / "examples/data/digits.csv"  # 64 grey values, then the digit they show

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch", type=int, default=64, help="of all ranks together")
parser.add_argument("--weights", help="where each rank puts its weights, as FILE.RANK.npy")
args = parser.parse_args()

gradring.init()
rank, size = gradring.rank(), gradring.size()

table = np.loadtxt(DIGITS, delimiter=",", dtype=np.float32)
images, labels = table[:, :64] / 16, table[:, 64].astype(int)
train, test = slice(0, 1536), slice(1536, None)

random = np.random.default_rng(rank)  # ranks begin differently, until they have rank 0's weights
params = {"w1": random.standard_normal((64, 128)) / 8, "b1": np.zeros(128),
          "w2": random.standard_normal((128, 10)) / 11, "b2": np.zeros(10)}
params = {name: gradring.broadcast(one.astype(np.float32), 0, name=name) for name, one in params.items()}
# In memory that is shared with the daemon gradients are summed where they lie.
gradients = {name: gradring.empty(one.shape, np.float32) for name, one in params.items()}
velocity = {name: np.zeros_like(one) for name, one in params.items()}


def forward(images):
    hidden = np.maximum(images @ params["w1"] + params["b1"], 0)
    logits = hidden @ params["w2"] + params["b2"]
    odds = np.exp(logits - logits.max(1, keepdims=True))
    return hidden, odds / odds.sum(1, keepdims=True)


def step(images, labels):
    """One rank's part of a step. Returns its loss."""
    hidden, odds = forward(images)
    loss = -np.log(odds[np.arange(len(labels)), labels]).mean()
    odds[np.arange(len(labels)), labels] -= 1
    odds /= len(labels)
    gradients["w2"][...] = hidden.T @ odds
    gradients["b2"][...] = odds.sum(0)
    # Under way while the first layer's are being computed.
    handles = [exchange("w2"), exchange("b2")]
    back = (odds @ params["w2"].T) * (hidden > 0)
    gradients["w1"][...] = images.T @ back
    gradients["b1"][...] = back.sum(0)
    for handle in [*handles, exchange("w1"), exchange("b1")]:
        gradring.synchronize(handle)
    for name, param in params.items():
        velocity[name] = 0.9 * velocity[name] + gradients[name]
        param -= 0.1 * velocity[name]
    return loss


def exchange(name):
    return gradring.allreduce_async(gradients[name], name=name, out=gradients[name])


share = args.batch // size
for epoch in range(args.epochs):
    order = np.random.default_rng(epoch).permutation(len(images[train]))
    losses = []
    for begin in range(0, len(order), args.batch):
        mine = order[begin + rank * share:begin + (rank + 1) * share]
        losses.append(step(images[mine], labels[mine]))
    loss = gradring.allreduce(np.array(losses), name="losses").mean()
    right = (forward(images[test])[1].argmax(1) == labels[test]).mean()
    if rank == 0:
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {right:.3f}", flush=True)

if args.weights:
    np.save(f"{args.weights}.{rank}.npy", np.concatenate([one.ravel() for one in params.values()]))
gradring.shutdown()
