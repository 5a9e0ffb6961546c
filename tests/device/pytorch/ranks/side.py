"""What the ranks of these jobs have in common: how they meet, and what they are told and report."""

import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import gradring.torch  # noqa: F401  (makes the backend known)

TOLD = json.loads(sys.argv[1])
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PATIENCE = timedelta(seconds=TOLD.get("patience", 100))
ON_GPU = TOLD["device"] == "cuda"
DEVICE = torch.device("cuda", 0) if ON_GPU else torch.device("cpu")  # all ranks have the same one
# Which place a rank has on its node depends on the ring; the library finds out.
for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
    os.environ.pop(name, None)
if os.environ.get("NCCL_HOSTID") == "RANK":
    os.environ["NCCL_HOSTID"] = f"rank{RANK}"
if ON_GPU:
    torch.cuda.set_device(DEVICE)
    torch.cuda.init()


def meet(backend="gloo"):
    dist.init_process_group(backend, init_method=f"file://{TOLD['store']}", rank=RANK, world_size=SIZE, timeout=PATIENCE)
    dist.barrier()  # a rank of Gloo can be done with meeting, and end, while another still waits for its answer


def group(backend, runtime_dirs=None, ranks=None):
    """One more group, beside the default; None where this rank is not in it. `runtime_dirs`: of gradring's daemons, by rank."""
    if runtime_dirs:
        os.environ["GRADRING_RUNTIME_DIR"] = runtime_dirs[RANK]  # read when the group is made
    made = dist.new_group(ranks, backend=backend, timeout=PATIENCE)
    return made if ranks is None or RANK in ranks else None


def groups(ways):
    """{way: group}, of {way: {"backend": ..., "runtime_dirs": ..., "ranks": ...}}. All ranks call it."""
    return {way: group(**how) for way, how in ways.items()}


def synchronize():
    if ON_GPU:
        torch.cuda.synchronize()


def together():
    """All ranks come here, and the GPU has nothing to do."""
    synchronize()
    dist.barrier()


def take_turns(ways, rounds):
    """Each way in each round; none always follows the same one."""
    names = list(ways)
    for number in range(rounds):
        for at in range(len(names)):
            step = 1 if number % 2 == 0 else -1
            yield names[(number + step * at) % len(names)]


def seconds(work, times):
    """For each of so many; the ranks begin together."""
    together()
    began = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - began) / times


def say(**report):
    print(json.dumps(report), flush=True)


def end():
    dist.barrier()
    dist.destroy_process_group()
