"""Rank 1 makes groups with rank 3, which never does, and says what it was told, and when. STORE"""

import time
from datetime import timedelta

import torch.distributed as dist
from meet import meet
from report import say

from gradring import GradringError

SECONDS = 3
RANK, _ = meet(seconds=SECONDS)
if RANK == 1:
    for seconds in (None, 0.5):
        begun = time.monotonic()
        try:
            dist.new_group([1, 3], timeout=seconds and timedelta(seconds=seconds))
        except GradringError as error:
            say(text=str(error), seconds=time.monotonic() - begun)
else:
    time.sleep(2 * SECONDS)
