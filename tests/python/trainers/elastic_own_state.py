"""Elastic training with a state of one's own, which says no root, as Horovod's need not. Goes on until all four ranks were there again.
STORE [MIN]"""

import sys
import time

import gradring
import numpy as np
from gradring.elastic import State, run
from report import say


class Own(State):
    def __init__(self):
        super().__init__(bcast_object=gradring.broadcast_object, get_rank=gradring.rank)
        self.step = self.kept = 0
        self.until = 40

    def save(self):
        self.kept = self.step

    def restore(self):
        self.step = self.kept

    def sync(self):
        self.step, self.until = self._bcast_object((self.step, self.until))
        self.kept = self.step

    def reset(self):
        self.until = self.step + 10


gradring.init(policy=f" elastic  min={sys.argv[2] if len(sys.argv) > 2 else 1}")  # blanks do not count


@run
def train(state):
    say(begins=state.step)
    while state.step < state.until or gradring.size() < 4:
        gradring.allreduce(np.ones(3, np.float32))
        state.step += 1
        say(step=state.step, size=gradring.size())
        time.sleep(0.05)
        state.commit()


train(Own())
