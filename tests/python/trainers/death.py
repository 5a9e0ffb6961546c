"""Trains until somebody dies, by DDP, with the hook or without, or by sums of its own, and says what was told of it. STORE WAY POLICY"""

import os
import sys
import time

import torch
from meet import meet
from report import say

import gradring.torch
from gradring import GradringError

os.environ["GRADRING_POLICY"] = sys.argv[3]
meet()
WITH_DDP = sys.argv[2] != "sums"
tensor = torch.ones(1000)
if WITH_DDP:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(50, 50))
if sys.argv[2] == "ddp-hook":
    model.register_comm_hook(None, gradring.torch.allreduce_hook)
for step in range(100000):
    try:
        if WITH_DDP:
            model(torch.randn(4, 50)).sum().backward()
        else:
            torch.distributed.all_reduce(tensor)
    except GradringError as error:
        say(rank=error.rank, node=error.node, pid=error.pid, cause=error.cause.name, text=str(error))
        sys.exit(0)
    except RuntimeError as error:  # torch has room for the text alone
        say(text=str(error))
        sys.exit(0)
    if step == 5:
        say(step=step)
    time.sleep(0.01)
