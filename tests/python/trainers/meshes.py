"""A small model on a mesh of two by two ranks, its copies, shards and slices in groups of their own, and in stages, as what is
too large for one GPU is trained; and once more in one process on all of the data. STORE WAY..."""

import hashlib
import sys

import torch
import torch.distributed as dist
from meet import meet
from report import say
from torch.distributed.device_mesh import init_device_mesh

import gradring.torch  # noqa: F401

STEPS, EACH = 6, 8
RANK, SIZE = meet()
MESH = init_device_mesh("cpu", (2, SIZE // 2), mesh_dim_names=("outer", "inner"))


def model_of():
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 5))


def batches(parts):
    """Of `parts` shares."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(STEPS):
        data = torch.randn(EACH * parts, 20, generator=generator)
        yield data, torch.randint(0, 5, (EACH * parts,), generator=generator)


def loss_of(out, labels):
    return torch.nn.functional.cross_entropy(out, labels)


def train(model, parts, mine):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for data, labels in batches(parts):
        optimizer.zero_grad()
        loss_of(model(data[mine]), labels[mine]).backward()
        optimizer.step()


def share(index):
    return slice(index * EACH, (index + 1) * EACH)


def weights(parameters):
    return torch.cat([one.detach().reshape(-1) for one in parameters])


def fsdp1(strategy):
    """Shards within a node, copies of them between nodes."""
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    model = FullyShardedDataParallel(model_of(), device_id=torch.device("cpu"), device_mesh=MESH,
                                     sharding_strategy=ShardingStrategy[strategy])
    train(model, SIZE, share(RANK))
    with FullyShardedDataParallel.summon_full_params(model):
        return SIZE, weights(model.module.parameters())


def fsdp2():
    from torch.distributed.fsdp import fully_shard

    model = model_of()
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=MESH)
    fully_shard(model, mesh=MESH)
    train(model, SIZE, share(RANK))
    return SIZE, weights(one.full_tensor() for one in model.parameters())


def tensors():
    """Slices of each layer within a node, shards of these between nodes."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = model_of()
    sliced = {"0": ColwiseParallel(), "2": RowwiseParallel(), "4": ColwiseParallel(), "6": RowwiseParallel()}
    parallelize_module(model, MESH["inner"], sliced)
    fully_shard(model, mesh=MESH["outer"])
    train(model, 2, share(MESH.get_local_rank("outer")))
    return 2, weights(one.full_tensor() for one in model.parameters())


def stages(schedule, each=1):
    """Each rank has `each` stages of the model: what one has worked out goes to the next, and its gradient comes back."""
    from torch.distributed import pipelining

    layers, count = list(model_of()), SIZE * each
    length = -(-len(layers) // count)
    parts = [torch.nn.Sequential(*layers[at * length:(at + 1) * length]) for at in range(count)]
    own = parts[RANK::SIZE]
    made = [pipelining.PipelineStage(part, RANK + at * SIZE, count, torch.device("cpu")) for at, part in enumerate(own)]
    runs = getattr(pipelining, schedule)(made if each > 1 else made[0], n_microbatches=SIZE, loss_fn=loss_of)
    optimizer = torch.optim.SGD([one for part in own for one in part.parameters()] or [torch.zeros(1)], 0.1)
    for data, labels in batches(SIZE):
        optimizer.zero_grad()
        first = (data,) if RANK == 0 else ()
        last = {"target": labels, "losses": []} if RANK == SIZE - 1 else {}
        runs.step(*first, **last)
        optimizer.step()
    for at, part in enumerate(parts):
        for one in part.parameters():
            dist.broadcast(one.detach(), at % SIZE)
    return SIZE, weights(one for part in parts for one in part.parameters())


WAYS = {
    "fsdp1-hybrid": lambda: fsdp1("HYBRID_SHARD"),
    "fsdp1-hybrid-zero2": lambda: fsdp1("_HYBRID_SHARD_ZERO2"),
    "fsdp2-hybrid": fsdp2,
    "tensors": tensors,
    "stages-gpipe": lambda: stages("ScheduleGPipe"),
    "stages-1f1b": lambda: stages("Schedule1F1B"),
    "stages-interleaved": lambda: stages("ScheduleInterleaved1F1B", each=2),
}
for way in sys.argv[2:]:
    parts, trained = WAYS[way]()
    alone = model_of()
    train(alone, parts, slice(None))
    off = float((trained - weights(alone.parameters())).abs().max())
    say(way=way, digest=hashlib.sha256(trained.numpy().tobytes()).hexdigest(), off=off)
dist.destroy_process_group()
