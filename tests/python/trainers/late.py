"""One rank waits for the others, which come later than each of its waits has time."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from meet import meet
from report import say

from gradring import GradringError

rank, size = meet()
short = dist.new_group()
short.set_timeout(timedelta(seconds=1))
tensor, other = torch.ones(10), torch.ones(10)


def too_late(what, function, *args, **keywords):
    began = time.monotonic()
    try:
        function(*args, **keywords)
    except (GradringError, RuntimeError) as error:  # of a future's, torch has kept the text
        say(what=what, code=error.code.name if hasattr(error, "code") else None, text=str(error), seconds=time.monotonic() - began)


dist.barrier()
if rank != 0:
    time.sleep(6)
work = dist.all_reduce(tensor, async_op=True)
others = dist.all_reduce(other, group=short, async_op=True)
by_method = dist.group.WORLD.allreduce(torch.ones(1), timeout=timedelta(seconds=0.5))
if rank == 0:
    too_late("wait", work.wait, timedelta(seconds=2))
    too_late("future", others.get_future().wait)
    too_late("method", by_method.wait)
    too_late("barrier", dist.barrier, timeout=timedelta(seconds=1))
else:
    dist.barrier()
work.wait()  # it is still under way, and nothing is lost
assert (tensor == size).all()
dist.destroy_process_group()
