"""Distributed checkpoints: written by all ranks, at once or while training goes on, and read again; and a model that rank 0
alone has."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from meet import meet
from report import say
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

RANK, SIZE = meet()


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(30, 30), torch.nn.Linear(30, 5))


def sharded(seed):
    model = model_of(seed)
    mesh = init_device_mesh("cpu", (SIZE,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def is_same(state, wanted):
    return all(torch.equal(state[name], value) for name, value in wanted.items())


def whole(model):
    return {name: value.full_tensor() for name, value in model.state_dict().items()}


def read(place, seed):
    state = {"model": model_of(seed).state_dict()}
    checkpoint.load(state, checkpoint_id=sys.argv[1] + place)
    return state["model"]


def at_once():
    saved = model_of(1).state_dict()
    checkpoint.save({"model": saved}, checkpoint_id=sys.argv[1] + ".at-once")
    return is_same(read(".at-once", 2), saved)


def while_training_goes_on():
    """By a thread of torch's, whose ops are not to come between those of training."""
    model = sharded(3)
    saved = whole(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    future = checkpoint.async_save({"model": model.state_dict()}, checkpoint_id=sys.argv[1] + ".meanwhile",
                                   process_group=dist.new_group())
    for _ in range(5):
        model(torch.ones(4, 30)).sum().backward()
        optimizer.step()
    future.result()
    return is_same(read(".meanwhile", 4), saved) and not is_same(whole(model), saved)


def with_the_default_group():
    saved = model_of(5).state_dict()
    checkpoint.async_save({"model": saved}, checkpoint_id=sys.argv[1] + ".default").result()
    return is_same(read(".default", 6), saved)


def from_rank_0():
    model = sharded(7)
    set_model_state_dict(model, model_of(8).state_dict() if RANK == 0 else {},
                         options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    return is_same(whole(model), model_of(8).state_dict())


for check in (at_once, while_training_goes_on, with_the_default_group, from_rank_0):
    say(way=check.__name__, same=check())
dist.destroy_process_group()
