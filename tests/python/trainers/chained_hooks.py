"""Hooks of torch's that start further ops when one ends, with several buckets: what their ranks end up with."""

import hashlib

import torch
import torch.distributed as dist
from meet import meet
from report import say
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks
from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, STEPS = 128, 8, 12
rank, size = meet()


def power_sgd(model):
    return PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2), powerSGD_hook


def quantized(model):
    return dist.group.WORLD, quantization_hooks.quantization_pertensor_hook


def quantized_by_channel(model):
    return dist.group.WORLD, quantization_hooks.quantization_perchannel_hook


def zero(model):
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1)
    return None, hook_with_zero_step(allreduce_hook, model, optimizer)


for hook in (power_sgd, quantized, quantized_by_channel, zero):
    torch.manual_seed(0)
    body = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    model = DistributedDataParallel(body, bucket_cap_mb=4 * WIDTH * WIDTH / 2**20, gradient_as_bucket_view=True)
    model.register_comm_hook(*hook(model))
    torch.manual_seed(1 + rank)
    seen = hashlib.sha256()
    for _ in range(STEPS):
        if hook is not zero:
            model.zero_grad()
        model(torch.randn(4, WIDTH)).square().mean().backward()
        for one in model.parameters():
            seen.update((one if hook is zero else one.grad).detach().numpy().tobytes())
    say(hook=hook.__name__, digest=seen.hexdigest())
dist.destroy_process_group()
