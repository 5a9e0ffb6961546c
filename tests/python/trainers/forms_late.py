"""Rank 1 comes seconds later to the job, and to a process set, than the others, who say so. SECONDS of their patience"""

import os
import sys
import time

import gradring
from report import say

os.environ["GRADRING_STALL_WARNING"] = sys.argv[2]
late = os.environ["RANK"] == "1"
if late:
    time.sleep(4)
gradring.init()
if late:
    time.sleep(4)
pair = gradring.add_process_set([0, 3])
late_pair = gradring.add_process_set([1, 2])
gradring.shutdown()
say(done=True)
