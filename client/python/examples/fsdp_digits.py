"""A classifier of handwritten digits whose weights are spread over the ranks by PyTorch's fully_shard.

    torchrun --nproc-per-node 4 fsdp_digits.py
"""

import argparse
from pathlib import Path

import gradring.torch
import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

DIGITS = Path(__file__).parents[2] / "examples/data/digits.csv"  # 64 grey values, then the digit they show

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch", type=int, default=64, help="of all ranks together")
parser.add_argument("--weights", help="where each rank puts all weights, as FILE.RANK.npy")
args = parser.parse_args()

dist.init_process_group("gradring")
rank, size = dist.get_rank(), dist.get_world_size()

table = torch.from_numpy(np.loadtxt(DIGITS, delimiter=",", dtype=np.float32))
images, labels = table[:, :64] / 16, table[:, 64].long()
train, test = slice(0, 1536), slice(1536, None)

torch.manual_seed(0)  # fully_shard sends nothing: all ranks must begin with the same weights
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
mesh = init_device_mesh("cpu", (size,))
for layer in model:
    if isinstance(layer, torch.nn.Linear):
        fully_shard(layer, mesh=mesh)  # each rank keeps one part of its rows
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # and of the optimizer's state

share = args.batch // size
for epoch in range(args.epochs):
    order = torch.randperm(len(images[train]), generator=torch.Generator().manual_seed(epoch))
    losses = []
    for batch in order.split(args.batch):
        mine = batch[rank * share:(rank + 1) * share]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[mine]), labels[mine])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        right = (model(images[test]).argmax(1) == labels[test]).float().mean()
    figures = gradring.torch.average_metrics({"loss": np.mean(losses), "accuracy": right})
    if rank == 0:
        print(f"epoch {epoch}: loss {figures['loss']:.4f}, accuracy {figures['accuracy']:.3f}", flush=True)

weights = torch.cat([one.full_tensor().flatten() for one in model.parameters()])  # an exchange: all ranks do it
if args.weights:
    np.save(f"{args.weights}.{rank}.npy", weights.detach().numpy())
dist.destroy_process_group()
