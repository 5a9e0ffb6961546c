"""Steps of known parts: waits for input, computes, and sums every so many of them.

STORE INPUT-MS COMPUTE-MS ELEMENTS EVERY LATE-MS STEPS: the last rank computes so much longer. Rank 0 says how long a step took, and
what its daemon says of that.
"""

import os
import sys
import time

import gradring
import numpy as np
from gradring.ctl import Ctl
from report import say

wait, compute, elements, every, late, steps = (int(word) for word in sys.argv[2:8])
WARM = 5

gradring.init()
values = gradring.empty(elements, np.float32)
values[:] = 1
mine = compute + (late if gradring.rank() == gradring.size() - 1 else 0)


def input_data():
    for number in range(WARM + steps):
        time.sleep(wait / 1e3)
        yield number


def work(milliseconds):
    """On the processor, half of it behind what goes round already."""
    until = time.perf_counter() + milliseconds / 1e3
    while time.perf_counter() < until:
        time.sleep(0.001)


gradring.barrier()
for number in gradring.batches(input_data()):
    if number == WARM:
        began = time.perf_counter()
    work(mine)
    if (number + 1) % every == 0:
        gradring.allreduce(values, op=gradring.Sum, name="gradient")
took = time.perf_counter() - began
gradring.barrier()  # whatever rank 0 asks now is of all ranks
if gradring.rank() == 0:
    job = Ctl(os.environ["GRADRINGCTL"]).ask("job", os.environ["GRADRING_JOB"])
    say(step=took / steps, straggler=job.get("straggler"),
        ranks=[one.get("steps", {}).get("mean_seconds") for one in job["ranks"]])
gradring.barrier()
gradring.shutdown()
