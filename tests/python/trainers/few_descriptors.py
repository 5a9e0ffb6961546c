"""DDP with gradring's hook and more buckets than the process may have descriptors. What is left of these, and of what it can do."""

import os
import resource

import torch
import torch.distributed as dist
from meet import meet
from report import say
from torch.nn.parallel import DistributedDataParallel

import gradring.torch

LIMIT, LAYERS, STEPS = 256, 260, 4
resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
rank, size = meet()
torch.manual_seed(0)
body = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(LAYERS)))
model = DistributedDataParallel(body, bucket_cap_mb=1e-4, gradient_as_bucket_view=True)
model.register_comm_hook(None, gradring.torch.allreduce_hook)
torch.manual_seed(1 + rank)
for _ in range(STEPS):
    model.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
grads = torch.cat([one.grad.reshape(-1) for one in model.parameters()])
of_all = [torch.empty_like(grads) for _ in range(size)]
dist.all_gather(of_all, grads)
total = torch.ones(1)
dist.all_reduce(total, group=dist.new_group())  # a connection to the daemon takes descriptors, too
say(same=all(torch.equal(one, grads) for one in of_all), total=total.item(), used=len(os.listdir("/proc/self/fd")) / LIMIT)
dist.destroy_process_group()
