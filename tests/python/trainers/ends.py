"""Ends with an op under way that another rank never starts, and a thread of ours waiting for it. STORE WAY"""

import sys

import gradring
import numpy as np
import torch
import torch.distributed as dist
from meet import meet
from report import say

if sys.argv[2] == "stages":
    gradring.init()
    rank = gradring.rank()
    left = gradring.allgather_async(np.ones(3)) if rank == 0 else None
else:
    rank, _ = meet()
    left = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(lambda _: None) if rank == 0 else None
ballast = [[i] for i in range(2_000_000)]  # so that the interpreter takes longer to end than a thread sleeps
say(ended=rank)
