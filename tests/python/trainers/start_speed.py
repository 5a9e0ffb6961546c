"""From init_process_group to the end of the first allreduce; and what Python costs for a bucket. STORE"""

import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from meet import meet
from report import say

import gradring.torch

STEPS, BUCKETS = 20, 50
ROUNDS = 5


class Bucket:
    """What the hook asks of a bucket of DDP."""

    def __init__(self, tensor):
        self.buffer = lambda: tensor


def begin_together():
    """All ranks have imported torch by then."""
    store, size = dist.FileStore(f"{sys.argv[1]}-meet"), int(os.environ["WORLD_SIZE"])
    store.add("here", 1)
    while store.add("here", 0) < size:
        time.sleep(0.001)


def costs(start):
    """Processor seconds for an op, of the thread that starts it and of the one that ends its future.

    The least of some rounds. Many are under way at a time, as in a step of DDP. Not all of that holds Python's lock:
    the library's submission is in it, too.
    """
    start().wait()
    finisher = next(one for one in threading.enumerate() if one.name == "gradring-finisher")
    clock = time.pthread_getcpuclockid(finisher.ident)
    rounds = []
    for _ in range(ROUNDS):
        began = time.thread_time(), time.clock_gettime(clock)
        for _ in range(STEPS):
            torch.futures.wait_all([start() for _ in range(BUCKETS)])
        ended = time.thread_time(), time.clock_gettime(clock)
        rounds.append([(end - begin) / STEPS / BUCKETS for begin, end in zip(began, ended)])
    return [min(each) for each in zip(*rounds)]


begin_together()
began = time.monotonic()
meet()
made = time.monotonic()
dist.all_reduce(torch.ones(1024))
summed = time.monotonic()
tensor = torch.ones(8)
bucket = Bucket(torch.ones(8))
opts = dist.AllreduceOptions()
group = dist.group.WORLD
told = {"allreduce": costs(lambda: group.allreduce([tensor], opts).get_future()),
        "hook": costs(lambda: gradring.torch.allreduce_hook(None, bucket))}
say(init=made - began, first=summed - made, **told)
dist.barrier()
dist.destroy_process_group()
