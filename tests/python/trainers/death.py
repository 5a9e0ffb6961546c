"""Trains until somebody dies, and says what was told of it."""

import sys
import time

import torch
from meet import meet
from report import say

from gradring import GradringError

meet()
tensor = torch.ones(1000)
for step in range(100000):
    try:
        torch.distributed.all_reduce(tensor)
    except GradringError as error:
        say(rank=error.rank, node=error.node, pid=error.pid, cause=error.cause.name, text=str(error))
        sys.exit(0)
    if step == 5:
        say(step=step)
    time.sleep(0.01)
