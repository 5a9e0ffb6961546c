"""One rank waits two seconds for the others, which come later than that."""

import time

import torch
import torch.distributed as dist
from meet import meet
from report import say

from gradring import GradringError

rank, size = meet()
tensor = torch.ones(10)
began = time.monotonic()
if rank != 0:
    time.sleep(4)
work = dist.all_reduce(tensor, async_op=True)
if rank == 0:
    from datetime import timedelta

    try:
        work.wait(timedelta(seconds=2))
    except GradringError as error:
        say(code=error.code.name, text=str(error), seconds=time.monotonic() - began)
work.wait()  # it is still under way, and nothing is lost
assert (tensor == size).all()
dist.destroy_process_group()
