"""Elastic training in which rank 0 goes back alone, and the other comes to its commit when that is known on its node."""

import time

import gradring
import numpy as np
from gradring.elastic import HorovodInternalError, ObjectState, run
from report import say

gradring.init(policy="elastic min=1")
gone_back = []


@run
def train(state):
    while state.step < 4:
        gradring.allreduce(np.ones(3, np.float32), op=gradring.Sum)
        if state.step == 2 and not gone_back:
            gone_back.append(state.step)
            if gradring.rank() == 0:
                raise HorovodInternalError("of this rank")
            time.sleep(0.5)
        state.step += 1
        state.commit()


state = ObjectState(step=0)
train(state)
say(step=state.step, size=gradring.size())
