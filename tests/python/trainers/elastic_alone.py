"""Elastic training in which rank 2 alone goes back to its last commit: where one goes on to an op of a process set and others to one of
all ranks, where all others go on to an op, and where they go on to a commit. Then all ranks do at once. Says what brought it back and
how far it was. STORE"""

import time

import gradring
import numpy as np
from gradring.elastic import HorovodInternalError, ObjectState, run
from report import say

gradring.init(policy="elastic min=4")
ALONE_BEFORE_SET, ALONE_BEFORE_OP, ALONE_BEFORE_COMMIT, TOGETHER, STEPS = 1, 3, 5, 7, 9
halves = [gradring.add_process_set(ranks) for ranks in ([0, 1], [2, 3])]
mine = halves[gradring.rank() // 2]
raised = set()


def goes_back(step, ranks, when):
    if step == when and gradring.rank() in ranks and when not in raised:
        raised.add(when)
        raise HorovodInternalError("of this rank")


@run
def train(state):
    try:
        while state.step < STEPS:
            goes_back(state.step, {2}, ALONE_BEFORE_SET)
            total = gradring.allreduce(np.full(3, state.step, np.float32), op=gradring.Sum, process_set=mine)
            assert (total == 2 * state.step).all(), total
            goes_back(state.step, {2}, ALONE_BEFORE_OP)
            goes_back(state.step, range(4), TOGETHER)
            rows = gradring.allgather_async(np.full(1, state.step))  # by a name that is made
            total = gradring.allreduce(np.full(3, state.step, np.float32), op=gradring.Sum)
            assert (total == 4 * state.step).all(), total
            assert (rows.wait() == state.step).all()
            goes_back(state.step, {2}, ALONE_BEFORE_COMMIT)
            state.step += 1
            state.commit()
    except HorovodInternalError as error:
        say(back=str(error), step=state.step, at=time.time())
        raise


state = ObjectState(step=0)
resets = []
state.register_reset_callbacks([lambda: resets.append(state.step)])
train(state)
say(resets=resets, size=gradring.size())
