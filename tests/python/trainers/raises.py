"""Rank 3 ends by an exception, and the others say what they were told where they wait for it. STORE"""

import torch
import torch.distributed as dist
from meet import meet
from report import say

from gradring import GradringError

RANK, _ = meet()
half = dist.new_group([1, 3])
if RANK % 2 == 1:
    dist.all_reduce(torch.ones(1), group=half)  # both have it
if RANK == 3:
    raise ValueError("no such batch\nin this file")
try:
    if RANK == 0:
        dist.new_group()
    else:
        dist.all_reduce(torch.ones(3), group=half if RANK == 1 else None)
except GradringError as error:
    say(rank=error.rank, pid=error.pid, text=str(error))
