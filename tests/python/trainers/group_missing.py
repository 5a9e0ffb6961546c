"""Rank 1 makes a group with rank 3, which never does, and says what it was told. STORE"""

import time

import torch.distributed as dist
from meet import meet
from report import say

from gradring import GradringError

SECONDS = 3
RANK, _ = meet(seconds=SECONDS)
if RANK == 1:
    try:
        dist.new_group([1, 3])
    except GradringError as error:
        say(text=str(error))
else:
    time.sleep(2 * SECONDS)
