"""One small op at a time by each way, from its call until the GPU is through, beside a kernel. Rank 0 says the microseconds."""

import time

import torch
import torch.distributed as dist
from side import DEVICE, RANK, TOLD, end, groups, meet, say, synchronize, take_turns, together

KERNEL = "kernel"

meet()
ways = {KERNEL: None, **groups(TOLD["ways"])}
alone = {KERNEL, *(way for way, how in TOLD["ways"].items() if how.get("ranks"))}  # the other rank waits for it, and computes nothing


def kernel(tensor, _):
    tensor.add_(1)
    launched = time.perf_counter()
    return launched, launched


def all_reduce(tensor, way):
    work = dist.all_reduce(tensor, group=ways[way], async_op=True)
    started = time.perf_counter()
    work.wait()
    return started, time.perf_counter()


for size in TOLD["sizes"]:
    tensor = torch.zeros(size // 4, device=DEVICE)
    taken = {way: [] for way in ways}  # until it is started, waited for, and done
    for way in take_turns(ways, TOLD["rounds"]):
        together()
        if way in alone and RANK != 0:
            continue
        do = kernel if way == KERNEL else all_reduce
        for number in range(-10, TOLD["times"]):
            called = time.perf_counter()
            started, waited = do(tensor, way)
            synchronize()
            done = time.perf_counter()
            if number >= 0:
                taken[way].append([1e6 * (moment - called) for moment in (started, waited, done)])
    if RANK == 0:
        say(size=size, us=taken)
end()
