"""Steps of DDP on a model of 25 M parameters, by gradring and by Gloo in turns. STORE ROUNDS STEPS"""

import statistics
import sys
import time

import torch
import torch.distributed as dist
from meet import meet
from report import say
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, EACH = 2048, 6, 16

rank, size = meet("gloo")
groups = {"gloo": dist.group.WORLD, "gradring": dist.new_group(list(range(size)), backend="gradring")}
torch.set_num_threads(1)
torch.manual_seed(0)
layers = [part for _ in range(LAYERS) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
models = {name: DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group)
          for name, group in groups.items()}
data = torch.randn(EACH, WIDTH)


def step(model):
    model(data).sum().backward()
    for parameter in model.parameters():
        parameter.grad = None


def steps(model, count):
    """Seconds for each; the ranks begin together."""
    dist.barrier()
    began = time.monotonic()
    for _ in range(count):
        step(model)
    return (time.monotonic() - began) / count


alone = []
taken = {name: [] for name in models}
for model in models.values():
    steps(model, 2)  # buckets are rebuilt after the first
for _ in range(int(sys.argv[2])):
    for name, model in models.items():
        taken[name].append(steps(model, int(sys.argv[3])))
    with models["gloo"].no_sync():
        alone.append(steps(models["gloo"], int(sys.argv[3])))
if rank == 0:
    parameters = sum(one.numel() for one in models["gloo"].parameters())
    say(parameters=parameters, alone=statistics.median(alone),
        **{name: statistics.median(seconds) for name, seconds in taken.items()})
dist.barrier()
dist.destroy_process_group()
