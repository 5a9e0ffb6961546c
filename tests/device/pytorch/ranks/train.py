"""Small models, trained in each of the ways that are named. Each rank leaves its weights in RESULTS.RANK.npz.

One rank alone takes the batches of all.
"""

import functools
import hashlib

import gradring.torch
import numpy as np
import torch
from side import DEVICE, RANK, SIZE, TOLD, end, meet, say
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

BATCH = 64  # of all ranks together
CLASSES, PIXELS = 10, 64
WIDTH = 1024  # so that one layer has more than the 2 MiB from which gradients are summed on GPUs
OVERFLOWS_IN = 4  # the step of the scaled training in which the last rank's gradients do

torch.use_deterministic_algorithms(True, warn_only=True)
meet(TOLD["backend"])
table = torch.from_numpy(np.loadtxt(TOLD["digits"], delimiter=",", dtype=np.float32)).to(DEVICE)
images, labels = table[:, :PIXELS] / 16, table[:, PIXELS].long()
train, test = slice(0, 1536), slice(1536, None)


def model(norm=False):
    torch.manual_seed(0)
    nn = torch.nn
    middle = [nn.BatchNorm1d(WIDTH)] if norm else []
    return nn.Sequential(nn.Linear(PIXELS, WIDTH), *middle, nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
                         nn.Linear(WIDTH, CLASSES)).to(DEVICE)


def shared(one):
    return DistributedDataParallel(one, device_ids=[0] if DEVICE.type == "cuda" else None) if SIZE > 1 else one


def batches(epochs):
    """This rank's part of each."""
    share = BATCH // SIZE
    for epoch in range(epochs):
        order = torch.randperm(len(images[train]), generator=torch.Generator().manual_seed(epoch)).to(DEVICE)
        for batch in order.split(BATCH)[:TOLD["steps"]]:
            yield batch[RANK * share:(RANK + 1) * share]


def sgd(one):
    return torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9)


def descend(one, epochs):
    optimizer = sgd(one)
    for mine in batches(epochs):
        optimizer.zero_grad()
        functional.cross_entropy(one(images[mine]), labels[mine]).backward()
        optimizer.step()


def accuracy(one):
    one.eval()
    with torch.no_grad():
        return (one(images[test]).argmax(1) == labels[test]).float().mean().item()


def weights(tensors):
    return torch.cat([one.detach().reshape(-1).float().cpu() for one in tensors]).numpy()


def ddp():
    one = shared(model())
    descend(one, TOLD["epochs"])
    return weights(one.parameters()), {"accuracy": accuracy(one)}


@functools.cache  # as long as its tensors
def pool():
    return gradring.torch.mem_pool()


def ddp_in_a_pool():
    if TOLD["backend"] == "gradring":
        one = model()
        with torch.cuda.use_mem_pool(pool()):
            one = DistributedDataParallel(one, device_ids=[0], gradient_as_bucket_view=True)
        gradring.torch.keep_buckets_in(pool(), one)
    else:
        one = shared(model())
    descend(one, 1)
    return weights(one.parameters()), {"accuracy": accuracy(one)}


def sync_batch_norm():
    one = model(norm=True)
    one = shared(torch.nn.SyncBatchNorm.convert_sync_batchnorm(one) if SIZE > 1 else one)
    descend(one, 1)
    running = [buffer for name, buffer in one.named_buffers() if "running" in name]
    return weights([*one.parameters(), *running]), {"accuracy": accuracy(one)}


def fsdp2(in_a_pool=False):
    if SIZE == 1:
        one = model()
        descend(one, 1)
        return weights(one.parameters()), {}
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if TOLD["backend"] == "gloo":  # beside which torch would have a group of NCCL for GPUs, and NCCL takes one rank a GPU
        mesh = DeviceMesh.from_group(torch.distributed.group.WORLD, DEVICE.type)
    else:
        mesh = init_device_mesh(DEVICE.type, (SIZE,))
    one = model()
    whole = [layer for layer in one if isinstance(layer, torch.nn.Linear)] + [one]
    for part in whole:
        fully_shard(part, mesh=mesh)
        if TOLD["backend"] == "gloo":  # not every Gloo has averages
            part.set_force_sum_reduction_for_comms(True)
        if in_a_pool and TOLD["backend"] == "gradring":
            part.set_allocate_memory_from_process_group_for_comm(True)
    descend(one, 1)
    return weights(parameter.full_tensor() for parameter in one.parameters()), {}


def grad_scaler():
    """In half precision. One rank's overflow is everybody's."""
    one = shared(model())
    optimizer = sgd(one)
    scaler, scales = torch.amp.GradScaler(DEVICE.type, init_scale=1024, growth_interval=6), []
    for number, mine in enumerate(batches(1)):
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, dtype=torch.float16):
            loss = functional.cross_entropy(one(images[mine]), labels[mine])
        if number == OVERFLOWS_IN and RANK == SIZE - 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return weights(one.parameters()), {"scales": scales}


WAYS = {"DDP": ddp, "FSDP2": fsdp2, "GradScaler": grad_scaler, "SyncBatchNorm": sync_batch_norm, "DDP in a pool": ddp_in_a_pool,
        "FSDP2 in a pool": functools.partial(fsdp2, in_a_pool=True)}
trained = {}
for way in TOLD["ways"]:
    try:
        trained[way], more = WAYS[way]()
    except (RuntimeError, ValueError, NotImplementedError, AttributeError) as error:
        say(way=way, refused=" ".join(str(error).split())[:300])
        continue
    say(way=way, digest=hashlib.sha256(trained[way].tobytes()).hexdigest(), **more)
np.savez(f"{TOLD['results']}.{RANK}.npz", **trained)
end()
