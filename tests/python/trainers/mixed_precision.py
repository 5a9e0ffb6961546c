"""Automatic mixed precision in which one rank's gradients overflow, for each type and wire; and what goes with large
batches."""

import hashlib
import os
import sys

import torch
import torch.distributed as dist
from gradring.torch import average_metrics, schedules
from meet import meet
from report import say
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

STEPS, OVERFLOWS_AT, BY_RANK, WIDE = 5, 2, 2, 1024
BLOCK, INFINITE, NAN = 256, 1000, 70000


def begin(wire):
    os.environ["GRADRING_WIRE"] = wire
    sys.argv[1] += "x"
    return meet()


def digest_of(tensors):
    return hashlib.sha256(b"".join(one.detach().contiguous().numpy().tobytes() for one in tensors)).hexdigest()


def survival(wire):
    """An infinity and a NaN of two ranks, in sums that are large enough to travel as the wire says."""
    tensor = torch.ones(1 << 17)
    if dist.get_rank() == 1:
        tensor[INFINITE] = float("inf")
    if dist.get_rank() == 3:
        tensor[NAN] = float("nan")
    dist.all_reduce(tensor)
    bad = (~tensor.isfinite()).nonzero().flatten().tolist()
    blocks = sorted({index // BLOCK for index in bad})
    say(way=f"survival {wire}", digest=digest_of([tensor]), bad=len(bad), first=tensor[INFINITE].isfinite().item(),
        second=tensor[NAN].isnan().item(), blocks=blocks == [INFINITE // BLOCK, NAN // BLOCK])


def model_of(shard=False):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, WIDE), torch.nn.ReLU(), torch.nn.Linear(WIDE, 256))
    if not shard:
        return DistributedDataParallel(model)
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=shard)
    return fully_shard(model, mesh=shard)


def train(way, model, dtype, overflow):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    generator = torch.Generator().manual_seed(dist.get_rank())
    scales, skipped = [], []
    for step in range(STEPS):
        data = torch.randn(8, 64, generator=generator)
        optimizer.zero_grad()
        if step == OVERFLOWS_AT and dist.get_rank() == BY_RANK:
            overflow(model)
        with torch.autocast("cpu", dtype=dtype):
            loss = model(data).float().square().mean()
        scaler.scale(loss).backward()
        before = [local(one).clone() for one in model.parameters()]
        scaler.step(optimizer)
        scaler.update()
        skipped.append(all(torch.equal(old, local(new)) for old, new in zip(before, model.parameters())))
        scales.append(scaler.get_scale())
    weights = [one.full_tensor() if hasattr(one, "full_tensor") else one for one in model.parameters()]
    say(way=way, digest=digest_of(weights), scales=scales, skipped=skipped,
        finite=all(one.isfinite().all().item() for one in weights))


def local(parameter):
    parameter = parameter.detach()
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def in_one_element(model):
    """Of the gradient, before it is exchanged."""
    def spoil(gradient):
        gradient = gradient.clone()
        gradient.view(-1)[0] = float("inf")
        return gradient
    parameter = list(model.parameters())[-1]
    handle = parameter.register_hook(lambda gradient: (handle.remove(), spoil(gradient))[1])


def in_an_activation(model):
    """Which makes all of the gradient so."""
    handle = model.module[2].register_full_backward_pre_hook(
        lambda _, gradients: (handle.remove(), (gradients[0] * float("inf"),))[1])


def in_one_shard(model):
    """Of the exchanged gradient, so that no other rank has it."""
    parameter = model[2].bias
    handle = parameter.register_post_accumulate_grad_hook(
        lambda one: (handle.remove(), local(one.grad).fill_(float("inf"))))


def helpers():
    rank, size = dist.get_rank(), dist.get_world_size()
    metrics = average_metrics({"loss": rank, "accuracy": torch.tensor(0.5)})
    weighted = average_metrics({"loss": float("nan") if rank == 0 else rank}, weight=rank)
    try:
        average_metrics({"loss": 1, **({"of one": 1} if rank == 3 else {})})
        refused = ""
    except ValueError as error:
        refused = str(error)
    half = dist.new_group([0, 1]), dist.new_group([2, 3])
    say(way="helpers", digest="", metrics=metrics, weighted=weighted["loss"], refused=refused,
        half=average_metrics({"rank": rank}, group=half[rank // 2])["rank"],
        warmup=[schedules.warmup(4)(step) for step in range(6)], size=size)


for wire in ("native", "fp16", "bf16", "int8"):
    begin(wire)
    survival(wire)
    train(f"float16 {wire}", model_of(), torch.float16, in_one_element)
    if wire == "native":
        train("bfloat16", model_of(), torch.bfloat16, in_an_activation)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        train("sharded", model_of(mesh), torch.float16, in_one_shard)
        helpers()
    dist.destroy_process_group()
