"""Rank 0 waits for what the others never submit."""

import time

import torch
from meet import meet
from report import say

rank, _ = meet()
if rank == 0:
    work = torch.distributed.all_reduce(torch.ones(10), async_op=True)
    say(waiting=True)
    work.wait()
time.sleep(60)
