"""Sums while a timeline is made, as GRADRING_TIMELINE or the script says. HOW FILE FOLDER-OF-PROGRAMS"""

import os
import sys

import numpy as np
from report import say

how, file, programs = sys.argv[2:5]
os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
if how == "environment":
    os.environ["HOROVOD_TIMELINE"] = file
elif how == "torch":
    os.environ["GRADRING_TIMELINE"] = file

if how == "torch":
    import torch
    import torch.distributed as dist
    from meet import meet

    meet("gradring")
    for _ in range(5):
        dist.all_reduce(torch.ones(300_000))
    dist.destroy_process_group()
else:
    import gradring

    # What init() is told, gradringctl is told as well.
    gradring.init(runtime_dir=os.environ.pop("GRADRING_RUNTIME_DIR"))
    gradring.barrier()  # all are there before anybody goes on
    if how == "script":
        gradring.allreduce(np.ones(300_000, np.float32), name="weights")  # the name is told with the first use alone
        gradring.start_timeline(file, mark_cycles=True)
        gradring.barrier()
    for _ in range(5):
        gradring.allreduce(np.ones(300_000, np.float32), name="weights")
    if how == "script":
        gradring.stop_timeline()
        say(there=os.path.exists(file))
    gradring.shutdown()
say(there=os.path.exists(file))
