"""A script for Horovod, of which the import alone was changed.

    gradring-run -np 4 python3 horovod_digits.py
"""

import argparse
from pathlib import Path

import gradring.torch as hvd  # was: import horovod.torch as hvd
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

DIGITS = Path(__file__).parents[2] / "examples/data/digits.csv"  # 64 grey values, then the digit they show

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch", type=int, default=64, help="of all ranks together")
parser.add_argument("--fp16-allreduce", action="store_true", help="gradients travel between nodes in 16 bits")
parser.add_argument("--checkpoint", type=Path, help="a file for what was learned")
parser.add_argument("--weights", help="where each rank puts its weights, as FILE.RANK.npy")
args = parser.parse_args()

hvd.init()
table = torch.from_numpy(np.loadtxt(DIGITS, delimiter=",", dtype=np.float32))
images, labels = table[:, :64] / 16, table[:, 64].long()
train, test = slice(0, 1536), slice(1536, None)
dataset = TensorDataset(images[train], labels[train])
sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
loader = DataLoader(dataset, batch_size=args.batch // hvd.size(), sampler=sampler)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(),
                                     compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none)

for epoch in range(args.epochs):
    sampler.set_epoch(epoch)
    for batch, goals in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch), goals)
        loss.backward()  # gradients are averaged while this goes on
        optimizer.step()
    with torch.no_grad():
        right = (model(images[test]).argmax(1) == labels[test]).float().mean()
    loss, accuracy = hvd.allreduce(torch.stack([loss.detach(), right]), name="metrics")
    if hvd.rank() == 0:
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}", flush=True)

if args.checkpoint and hvd.rank() == 0:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, args.checkpoint)
if args.weights:
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    np.save(f"{args.weights}.{hvd.rank()}.npy", weights)
hvd.shutdown()
