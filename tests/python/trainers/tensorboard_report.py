"""Sums for some seconds, of which rank 1 has a NaN in one, while a Reporter writes to the folder that is given."""

import sys
import time

import gradring
import gradring.tensorboard
import numpy as np
from report import say

folder, ctl = sys.argv[2:4]
gradring.init()
reporter = gradring.tensorboard.Reporter(folder, 0.2, gradringctl=ctl)
values = np.ones(100000, np.float32)
spoilt = values.copy()
spoilt[5:8] = np.nan
gradring.allreduce(spoilt if gradring.rank() == 1 else values)
until = time.monotonic() + 3
# All ranks do as many.
while gradring.allreduce(np.array([time.monotonic() - until]), op=gradring.Min)[0] < 0:
    gradring.allreduce(values)
say(imported="tensorflow" in sys.modules or "torch" in sys.modules)
gradring.shutdown()
