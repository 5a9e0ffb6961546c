"""Elastic training in which rank 3 is lost, all others go back to the last commit, and rank 2 is lost as they meet:
when they have begun to tell of themselves, or know of it when they begin, or exchange something in their reset
callback, by the second word. With "first" rank 3 alone is lost, when all have met for the first time.
STORE begun|known|reset|first"""

import os
import signal
import sys
import time

import gradring
import numpy as np
from gradring.elastic import HorovodInternalError, ObjectState, run
from gradring.world import World
from report import say

RANK = int(os.environ["RANK"])
STEPS = 6
raised = []
find_out = World._find_out


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def find_out_or_die(self, numbers):
    """Behind the join point, at which all others have counted this rank."""
    if sys.argv[2] == "first":
        if RANK == 3:
            time.sleep(0.5)
            die()
        return find_out(self, numbers)
    if raised and len(numbers) == 3 and sys.argv[2] != "reset":
        if RANK == 2:
            time.sleep(1 if sys.argv[2] == "begun" else 0)
            die()
        if sys.argv[2] == "known":
            gradring.barrier()  # which goes on without it
    return find_out(self, numbers)


World._find_out = find_out_or_die
gradring.init(policy="elastic min=2")


@run
def train(state):
    while state.step < STEPS:
        gradring.allreduce(np.ones(3, np.float32), op=gradring.Sum)
        if state.step == 2 and not raised:
            raised.append(state.step)
            if RANK == 3:
                die()
            raise HorovodInternalError("all go back")
        state.step += 1
        state.commit()


state = ObjectState(step=0)
resets = []


def reset():
    resets.append(gradring.size())
    if sys.argv[2] == "reset" and gradring.size() == 3:
        if RANK == 2:
            die()
        gradring.broadcast(np.ones(3, np.float32), root_rank=2)


state.register_reset_callbacks([reset])
train(state)
say(resets=resets, place=[gradring.rank(), gradring.size(), gradring.local_rank(), gradring.local_size()], step=state.step)
