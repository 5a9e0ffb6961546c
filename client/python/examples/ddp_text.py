"""A language model of bytes, which tells the next from those before it, trained with PyTorch's DistributedDataParallel.

    torchrun --nproc-per-node 4 ddp_text.py --text README.md
"""

import argparse
from pathlib import Path

import gradring.torch
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CONTEXT = 16

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--text", type=Path, default=Path(__file__).parents[3] / "README.md")
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--batch", type=int, default=64, help="of all ranks together")
parser.add_argument("--weights", help="where each rank puts its weights, as FILE.RANK.npy")
args = parser.parse_args()

dist.init_process_group("gradring")
rank, size = dist.get_rank(), dist.get_world_size()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(256, 16)
        self.hidden = torch.nn.Linear(16 * CONTEXT, 128)
        self.output = torch.nn.Linear(128, 256)

    def forward(self, context):
        return self.output(torch.tanh(self.hidden(self.embedding(context).flatten(1))))


text = torch.frombuffer(bytearray(args.text.read_bytes()), dtype=torch.uint8).long()
windows = text.unfold(0, CONTEXT + 1, 1)  # of each: what is known, and the byte to be told
torch.manual_seed(0)
model = DistributedDataParallel(Model())
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
generator = torch.Generator().manual_seed(1)  # the same on all ranks, which take parts of the same batches
share = args.batch // size

for step in range(args.steps):
    batch = torch.randint(len(windows), (args.batch,), generator=generator)
    mine = windows[batch[rank * share:(rank + 1) * share]]
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(mine[:, :-1]), mine[:, -1])
    loss.backward()
    optimizer.step()
    if (step + 1) % 50 == 0:
        figures = gradring.torch.average_metrics({"bits": loss.item() / np.log(2)})
        if rank == 0:
            print(f"step {step + 1}: {figures['bits']:.3f} bits a byte", flush=True)

if args.weights:
    np.save(f"{args.weights}.{rank}.npy", torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy())
dist.destroy_process_group()
