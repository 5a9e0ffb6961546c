"""Rank 3 dies, and rank 1, which has a group with it and another with rank 2, says what was told of that. STORE"""

import os
import signal
import time

import torch
import torch.distributed as dist
from meet import meet
from report import say

from gradring import GradringError

RANK, _ = meet()
pair, others = dist.new_group([1, 3]), dist.new_group([1, 2])
dist.barrier()
if RANK == 3:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0.5)  # so that no op is open when it is told
for group in (pair, pair, others, dist.group.WORLD):
    if RANK in dist.get_process_group_ranks(group):
        try:
            dist.all_reduce(torch.ones(3), group=group)
        except GradringError as error:
            say(rank=error.rank, pid=error.pid, text=str(error))
