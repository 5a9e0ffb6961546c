"""How often each byte of DDP's gradients is copied in a step, in the ways that docs/pytorch.md names."""

import torch
import torch.distributed as dist
from copies import copies_a_byte
from meet import meet
from report import say
from torch.nn.parallel import DistributedDataParallel

import gradring.torch

WIDTH = 256
rank, size = meet()
for hook in (False, True):
    for views, kept in ((False, False), (True, False), (True, True)):
        layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3)]
        model = DistributedDataParallel(torch.nn.Sequential(*layers), gradient_as_bucket_view=views)
        if hook:
            model.register_comm_hook(None, gradring.torch.allreduce_hook)

        def step(model=model, kept=kept):
            model.zero_grad(set_to_none=not kept)
            model(torch.ones(1, WIDTH)).sum().backward()

        for _ in range(3):  # buckets are rebuilt after the first
            step()
        nbytes = sum(4 * one.numel() for one in model.parameters())
        say(hook=hook, views=views, kept=kept, **copies_a_byte(step, nbytes, dist.group.WORLD.job))
dist.destroy_process_group()
