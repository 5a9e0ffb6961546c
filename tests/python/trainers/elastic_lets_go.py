"""Elastic training in which rank 1 goes back alone again and again, while rank 0 waits for it in an op of a process set: of one part, and
of several. Says, each time it begins, how many descriptors it has and how many batches. Nobody looks for cycles of references. STORE"""

import gc
import os
import weakref

import gradring
import numpy as np
from gradring.elastic import HorovodInternalError, ObjectState, run
from gradring.process_sets import process_set_of
from report import say

gradring.init(policy="elastic min=4")
gc.disable()
STEPS = 6
batches = weakref.WeakSet()


class Batch:
    def __init__(self):
        self.values = np.ones(1000, np.float32)
        batches.add(self)


@run
def train(state):
    say(descriptors=len(os.listdir("/proc/self/fd")), batches=len(batches))
    if state.step == STEPS:
        return
    batch = Batch()
    pair = gradring.add_process_set([0, 1])
    state.step += 1
    state.commit()
    if gradring.rank() == 1:
        raise HorovodInternalError("of this rank")
    if gradring.rank() == 0:
        exchange = gradring.allgather if state.step % 2 else gradring.allreduce
        exchange(batch.values, process_set=pair)
    gradring.barrier()


def forget_sets():
    for one in gradring.process_set_ids()[1:]:
        gradring.remove_process_set(process_set_of(one))


state = ObjectState(step=0)
state.register_reset_callbacks([forget_sets])
train(state)
