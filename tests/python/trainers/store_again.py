"""The default group is made three times by one store, which is there all the while, and rank 0 is the last to come. STORE"""

import os
import sys
import time
from datetime import timedelta

import gradring.torch  # noqa: F401  (makes the backend known)
import torch
import torch.distributed as dist
from report import say

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.FileStore(sys.argv[1], SIZE)

for life in range(3):
    if RANK == 0 and life > 0:
        time.sleep(0.5)
    dist.init_process_group("gradring", store=store, rank=RANK, world_size=SIZE, timeout=timedelta(seconds=60))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    say(total=tensor[0].item())
    dist.destroy_process_group()
