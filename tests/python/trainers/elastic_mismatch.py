"""Elastic training in which ranks do not agree on a size from step 3 on. Says each time where it begins it. STORE"""

import gradring
import numpy as np
from gradring.elastic import ObjectState, run
from report import say

gradring.init(policy="elastic min=2")


@run
def train(state):
    while state.step < 6:
        if state.step == 3:
            say(step=state.step)
        gradring.allreduce(np.ones(3 if state.step < 3 else 3 + gradring.rank()), name="gradient")
        state.step += 1
        state.commit()


train(ObjectState(step=0))
