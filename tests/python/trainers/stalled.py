"""Rank 1 comes seconds later to sums of all and of a group than the others, who say so. SECONDS of their patience"""

import logging
import os
import sys
import time

import torch
import torch.distributed as dist
from meet import meet

os.environ["GRADRING_STALL_WARNING"] = sys.argv[2]
if int(os.environ["RANK"]) == 3:  # a handler that fails: nothing else does for that
    logging.getLogger("gradring").warning = None
rank, size = meet()
group = dist.new_group([1, 2])
dist.barrier()
if rank == 1:
    time.sleep(2.6)
works = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(3)]
futures = [work.get_future() for work in works]
for future in futures:
    future.wait()
if rank == 1:
    time.sleep(2.6)
if rank in (1, 2):
    dist.all_reduce(torch.ones(10), group=group)
dist.barrier()
dist.destroy_process_group()
