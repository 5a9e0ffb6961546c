"""DDP whose process group is Gloo's and whose gradients are gradring's, by the hook; the model outlives both groups."""

import sys

import torch
import torch.distributed as dist
from expect import refused
from meet import meet
from report import say
from torch.nn.parallel import DistributedDataParallel

import gradring.torch

STEPS, WIDTH = 4, 300
rank, size = meet("gloo")
ours = dist.new_group(backend="gradring") if sys.argv[2] == "given" else None


def gradients(model, data, zero):
    """Of each step, all in one."""
    for step in range(STEPS):
        model.zero_grad(set_to_none=zero == "none")
        (model(data[step]) ** 2).sum().backward()
        yield torch.cat([one.grad.reshape(-1) for one in model.parameters()]).clone()


def fresh():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))


data = torch.randn(size, STEPS, 8, WIDTH, generator=torch.Generator().manual_seed(1))
for zero in ("none", "in-place"):
    model = DistributedDataParallel(fresh(), gradient_as_bucket_view=True, bucket_cap_mb=0.2)
    model.register_comm_hook(ours, gradring.torch.allreduce_hook)
    averages = list(gradients(model, data[rank], zero))
    expected = [torch.stack(each).mean(0) for each in zip(*(gradients(fresh(), one, "none") for one in data))]
    off = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(averages, expected))
    group = ours or gradring.torch.hooks.own_group()
    say(zero=zero, off=off, copied=group.job.copied_bytes)
before = torch.cat([one.grad.reshape(-1) for one in model.parameters()]).clone()
dist.barrier()
dist.destroy_process_group()
after = torch.cat([one.grad.reshape(-1) for one in model.parameters()])
for one in model.parameters():
    one.grad.zero_()
if ours is not None:
    refused(RuntimeError, "mean of a bucket on a process group that has been destroyed", list, gradients(model, data[rank], "none"))
say(open=group.is_open, kept=bool((before == after).all()) and not after.isnan().any().item())
