"""A classifier of handwritten digits, trained with PyTorch's DistributedDataParallel.

    torchrun --nproc-per-node 4 ddp_digits.py
"""

import argparse
from pathlib import Path

import gradring.torch
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DIGITS = Path(__file__).parents[2] / "examples/data/digits.csv"  # 64 grey values, then the digit they show

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch", type=int, default=64, help="of all ranks together")
parser.add_argument("--weights", help="where each rank puts its weights, as FILE.RANK.npy")
args = parser.parse_args()

dist.init_process_group("gradring")
rank, size = dist.get_rank(), dist.get_world_size()

table = torch.from_numpy(np.loadtxt(DIGITS, delimiter=",", dtype=np.float32))
images, labels = table[:, :64] / 16, table[:, 64].long()
train, test = slice(0, 1536), slice(1536, None)

torch.manual_seed(0)  # DDP sends rank 0's weights to all in any case
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

share = args.batch // size
for epoch in range(args.epochs):
    order = torch.randperm(len(images[train]), generator=torch.Generator().manual_seed(epoch))
    losses = []
    for batch in order.split(args.batch):
        mine = batch[rank * share:(rank + 1) * share]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[mine]), labels[mine])
        loss.backward()  # gradients are averaged while this goes on
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        right = (model.module(images[test]).argmax(1) == labels[test]).float().mean()
    figures = gradring.torch.average_metrics({"loss": np.mean(losses), "accuracy": right})
    if rank == 0:
        print(f"epoch {epoch}: loss {figures['loss']:.4f}, accuracy {figures['accuracy']:.3f}", flush=True)

if args.weights:
    np.save(f"{args.weights}.{rank}.npy", torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy())
dist.destroy_process_group()
