"""Elastic training with a process set of each two neighbours. Rank 3 is lost, and rank 0 as the others make theirs anew: rank 1 is told,
and rank 2, which shares no set with rank 0, waits for rank 1 in theirs."""

import os
import signal
import time

import gradring
import numpy as np
from gradring.elastic import ObjectState, run
from report import say

RANK = int(os.environ["RANK"])
sets = []


def make_sets():
    while sets:
        gradring.remove_process_set(sets.pop())
    if gradring.size() == 3 and RANK == 0:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    for first in range(gradring.size() - 1 if gradring.size() > 2 else 0):
        sets.append(gradring.add_process_set([first, first + 1]))


@run
def train(state):
    while state.step < 6:
        gradring.allreduce(np.ones(3, np.float32), op=gradring.Sum)
        if state.step == 2 and RANK == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        state.step += 1
        state.commit()


gradring.init(policy="elastic min=1")
make_sets()
state = ObjectState(step=0)
state.register_reset_callbacks([make_sets])
train(state)
say(step=state.step, size=gradring.size())
