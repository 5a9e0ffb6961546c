"""The default group is Gloo's. Rank 0 makes a group with rank 2, which never does; rank 3 dies, and rank 1 has a group with it. Both
say what was told of that. STORE"""

import os
import signal
from datetime import timedelta

import torch
import torch.distributed as dist
from meet import meet
from report import say

from gradring import GradringError

RANK, _ = meet("gloo")
dist.barrier()  # Gloo's ranks do not wait for one another when they meet, and nobody may go while another still connects
pair = dist.new_group([1, 3], backend="gradring")
if RANK == 3:
    dist.barrier(pair)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    if RANK == 0:
        dist.new_group([0, 2], backend="gradring", timeout=timedelta(seconds=1), use_local_synchronization=True)
    if RANK == 1:
        dist.barrier(pair)
        dist.all_reduce(torch.ones(3), group=pair)
except GradringError as error:
    say(rank=error.rank, pid=error.pid, text=str(error))
os._exit(0)  # the end of Gloo's group would wait for rank 3
