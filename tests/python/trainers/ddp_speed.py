"""Steps of DDP on a model of 25 M parameters, by gradring and by Gloo in turns. STORE ROUNDS STEPS

The batch is of the size with which Gloo's steps are 41 to 46 % computing.
"""

import contextlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
from copies import copies_a_byte
from meet import meet
from report import say
from torch.nn.parallel import DistributedDataParallel

import gradring.torch

WIDTH, LAYERS = 1024, 24
EFFICIENCY = 0.435  # of Gloo, aimed at
LEAST, MOST = 2, 512  # rows

rank, size = meet("gloo", seconds=300)
torch.set_num_threads(1)
torch.manual_seed(0)
ours = dist.new_group(backend="gradring")


def model(group=None, hook=None, **options):
    layers = [part for _ in range(LAYERS) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    made = DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group, **options)
    if hook is not None:
        made.register_comm_hook(ours, hook)
    return made


models = {
    "gloo": model(),
    "gloo, views": model(gradient_as_bucket_view=True),
    "gradring": model(ours),
    "gradring, hook and views": model(hook=gradring.torch.allreduce_hook, gradient_as_bucket_view=True),
    "the same, bf16 wire": model(hook=gradring.torch.bf16_wire_hook, gradient_as_bucket_view=True),
}


def step(one, data):
    one(data).sum().backward()
    one.zero_grad()


def seconds(name, rows, count, exchange=True):
    """For each step; the ranks begin together."""
    data, one = torch.randn(rows, WIDTH), models[name]
    dist.barrier()
    began = time.monotonic()
    with contextlib.nullcontext() if exchange else one.no_sync():
        for _ in range(count):
            step(one, data)
    return (time.monotonic() - began) / count


def fitting_rows(rows=32):
    for _ in range(3):
        alone, whole = seconds("gloo", rows, 2, exchange=False), seconds("gloo", rows, 2)
        efficiency = min(alone / whole, 0.9)
        fits = rows * EFFICIENCY / (1 - EFFICIENCY) * (1 - efficiency) / efficiency
        agreed = torch.tensor(min(max(fits, LEAST), MOST))
        dist.broadcast(agreed, 0)
        rows = int(agreed)
    return rows


for name in models:
    seconds(name, LEAST, 2)  # buckets are rebuilt after the first step
rows, rounds, count = fitting_rows(), int(sys.argv[2]), int(sys.argv[3])
taken = {name: [] for name in ("alone", *models)}
for _ in range(rounds):
    for name in models:
        taken[name].append(seconds(name, rows, count))
    taken["alone"].append(seconds("gloo", rows, count, exchange=False))
nbytes = sum(one.numel() * one.element_size() for one in models["gloo"].parameters())
copies = {name: copies_a_byte(lambda: step(one, torch.randn(LEAST, WIDTH)), nbytes, ours.job)
          for name, one in models.items()}
if rank == 0:
    say(bytes=nbytes, rows=rows, copies=copies, seconds={name: statistics.median(all) for name, all in taken.items()})
dist.barrier()
dist.destroy_process_group()
