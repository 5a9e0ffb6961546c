"""Elastic training in which rank 0 is lost as it hands out its state, two steps after the last commit: of that the model has gone out
already, and the number of the step not yet. STORE"""

import os
import signal

import gradring
import torch
from gradring.torch.elastic import HostsUpdatedInterrupt, TorchState, run
from report import say

gradring.init(policy="elastic min=1")


class Bomb:
    armed = False

    def state_dict(self):
        if self.armed and gradring.rank() == 0 and gradring.size() == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return {}

    def load_state_dict(self, state):
        pass


@run
def train(state):
    say(weight=state.model.weight.item(), step=state.step)
    while state.step < 5:
        with torch.no_grad():
            state.model.weight += 1
        state.step += 1
        if state.step == 3:
            state.commit()
    if not bomb.armed:
        bomb.armed = True
        raise HostsUpdatedInterrupt()


model = torch.nn.Linear(1, 1)
torch.nn.init.zeros_(model.weight)
bomb = Bomb()
train(TorchState(model, bomb=bomb, step=0))
