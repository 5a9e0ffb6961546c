"""Rank 3 ends by an exception, and the others say what they were told where they wait for it. STORE alone|spawned"""

import os
import sys

import torch
import torch.distributed as dist
from meet import meet
from report import say

from gradring import GradringError


def train(_):
    rank, _ = meet()
    dist.barrier()  # all are in it: who is late would hear of the end by the error of meet()
    half = dist.new_group([1, 3])
    if rank % 2 == 1:
        dist.all_reduce(torch.ones(1), group=half)  # both have it
    if rank == 3:
        say(pid=os.getpid())
        raise ValueError("no such batch\nin this file")
    try:
        if rank == 0:
            dist.new_group()
        else:
            dist.all_reduce(torch.ones(3), group=half if rank == 1 else None)
    except GradringError as error:
        say(rank=error.rank, pid=error.pid, text=str(error))


if __name__ == "__main__":
    if sys.argv[2] == "spawned":
        torch.multiprocessing.spawn(train)
    else:
        train(0)
