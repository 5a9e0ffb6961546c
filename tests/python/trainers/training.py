"""A small model, trained in each of the ways that are named, and once more in one process on all of the data."""

import hashlib
import sys

import torch
import torch.distributed as dist
from meet import meet
from report import say
from torch.nn.parallel import DistributedDataParallel

import gradring.torch

STEPS, EACH = 6, 8
RANK, SIZE = meet()


class Model(torch.nn.Module):
    def __init__(self, with_table=False):
        super().__init__()
        torch.manual_seed(0)
        nn = torch.nn
        self.body = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
        self.table = torch.nn.Embedding(11, 20, sparse=True) if with_table else None
        self.unused = torch.nn.Linear(3, 3) if with_table else None

    def forward(self, data):
        if self.table is not None:
            data = data + self.table(data[:, 0].abs().mul(10).long().clamp(max=10))
        return self.body(data)


def batches():
    """Of all ranks together."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(STEPS):
        data = torch.randn(EACH * SIZE, 20, generator=generator)
        yield data, torch.randint(0, 5, (EACH * SIZE,), generator=generator)


def train(model, optimizer, share, step_of=lambda model, loss, number: loss.backward()):
    for number, (data, labels) in enumerate(batches()):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(data[share]), labels[share])
        step_of(model, loss, number)
        optimizer.step()


def weights(parameters):
    return torch.cat([one.detach().reshape(-1) for one in parameters])


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.1)


def compiled(model):
    return torch.compile(model, backend="aot_eager")  # by which all is traced as by others, and nothing takes a C++ compiler


def ddp(with_table=False, hook=None, optimizer_of=sgd, compile_it=lambda model: model, **options):
    model = DistributedDataParallel(Model(with_table), **options)
    if hook is not None:
        model.register_comm_hook(*hook())
    train(compile_it(model), optimizer_of(model.parameters()), MINE)
    return weights(model.parameters())


def fp16():
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    return None, fp16_compress_hook


def own_hook(name="allreduce_hook"):
    return None, getattr(gradring.torch, name)


def power_sgd():
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    # Of full rank, so that little is lost.
    state = power.PowerSGDState(None, matrix_approximation_rank=64, start_powerSGD_iter=2, min_compression_rate=0.1)
    return state, power.powerSGD_hook


def zero(parameters):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=0.1)


def fsdp1(compile_it=lambda model: model, **options):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(Model(), device_id=torch.device("cpu"), **options)
    train(compile_it(model), sgd(model.parameters()), MINE)
    with FullyShardedDataParallel.summon_full_params(model):
        return weights(model.module.parameters())


def fsdp2():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = Model(), init_device_mesh("cpu", (SIZE,))
    for layer in model.body:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, sgd(model.parameters()), MINE)
    return weights(one.full_tensor() for one in model.parameters())


def join(**options):
    """Each rank has one batch more than the one before it. No single process does the same."""
    model = DistributedDataParallel(Model(), **options)
    optimizer = sgd(model.parameters())
    with model.join():
        for _, (data, labels) in zip(range(2 + RANK), batches()):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(data[MINE]), labels[MINE]).backward()
            optimizer.step()
    return weights(model.parameters())


def accumulate():
    """Two halves of a share, of which the second alone exchanges."""
    model = DistributedDataParallel(Model())
    optimizer = sgd(model.parameters())
    for data, labels in batches():
        optimizer.zero_grad()
        begin, middle, end = (RANK * EACH + half * EACH // 2 for half in range(3))
        first, second = slice(begin, middle), slice(middle, end)
        with model.no_sync():
            (torch.nn.functional.cross_entropy(model(data[first]), labels[first]) / 2).backward()
        (torch.nn.functional.cross_entropy(model(data[second]), labels[second]) / 2).backward()
        optimizer.step()
    return weights(model.parameters())


MINE = slice(RANK * EACH, (RANK + 1) * EACH)
WAYS = {
    "ddp": ddp,
    "ddp-views": lambda: ddp(gradient_as_bucket_view=True),
    "ddp-unused-and-sparse": lambda: ddp(with_table=True, find_unused_parameters=True),
    "ddp-fp16": lambda: ddp(hook=fp16),
    "ddp-hook": lambda: ddp(hook=own_hook),
    "ddp-hook-views": lambda: ddp(hook=own_hook, gradient_as_bucket_view=True),
    "ddp-hook-sparse": lambda: ddp(with_table=True, hook=own_hook, find_unused_parameters=True),
    "ddp-bf16-wire": lambda: ddp(hook=lambda: own_hook("bf16_wire_hook")),
    "ddp-powersgd": lambda: ddp(hook=power_sgd),
    "zero": lambda: ddp(optimizer_of=zero),
    "ddp-compiled": lambda: ddp(compile_it=compiled),
    "ddp-hook-compiled": lambda: ddp(hook=own_hook, compile_it=compiled),
    "fsdp1": fsdp1,
    "fsdp1-compiled": lambda: fsdp1(compile_it=compiled, use_orig_params=True),
    "fsdp2": fsdp2,
    "accumulate": accumulate,
    "join": join,
    "join-unused": lambda: join(find_unused_parameters=True),
}
for way in sys.argv[2:]:
    trained = WAYS[way]()
    alone = Model("sparse" in way)
    train(alone, sgd(alone.parameters()), slice(None))
    off = 0.0 if "join" in way else float((trained - weights(alone.parameters())).abs().max())
    say(way=way, digest=hashlib.sha256(trained.numpy().tobytes()).hexdigest(), off=off)
dist.destroy_process_group()
