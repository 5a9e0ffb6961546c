"""Ranks that have different numbers of batches: those that are through take part, without data, until all are.

    torchrun --nproc-per-node 4 join_uneven.py
"""

import argparse
from pathlib import Path

import gradring.torch
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DIGITS = Path(__file__).parents[2] / "examples/data/digits.csv"  # 64 grey values, then the digit they show
ROWS = 1584  # 24 batches of 64, and three quarters of one

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch", type=int, default=64, help="of all ranks together")
parser.add_argument("--weights", help="where each rank puts its weights, as FILE.RANK.npy")
args = parser.parse_args()

dist.init_process_group("gradring")
rank, size = dist.get_rank(), dist.get_world_size()

table = torch.from_numpy(np.loadtxt(DIGITS, delimiter=",", dtype=np.float32))
images, labels = table[:, :64] / 16, table[:, 64].long()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
model = DistributedDataParallel(model)
# Without a state of its own: a rank that is through takes no more steps, and so would have another momentum than those
# that were last. Weights it gets from one of these when join() ends.
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

share = args.batch // size
for epoch in range(args.epochs):
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(epoch))
    batches = order.split(share)[rank::size]  # the last ranks have one less, where they cannot be shared out evenly
    rows, total = 0, 0.0
    # Divided by the ranks that still have data: the mean over what there is, as one process would have it.
    with model.join(divide_by_initial_world_size=False):
        for mine in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[mine]), labels[mine])
            loss.backward()
            optimizer.step()
            rows, total = rows + len(mine), total + loss.item() * len(mine)
    with torch.no_grad():
        right = (model.module(images[ROWS:]).argmax(1) == labels[ROWS:]).float().mean()
    figures = gradring.torch.average_metrics({"loss": total / rows, "accuracy": right}, weight=rows)
    if rank == 0:
        print(f"epoch {epoch}: loss {figures['loss']:.4f}, accuracy {figures['accuracy']:.3f}", flush=True)

if args.weights:
    np.save(f"{args.weights}.{rank}.npy", torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy())
dist.destroy_process_group()
