"""Elastic training in which the last rank's state has no schedule, as of another version of the script. STORE"""

import gradring
import torch
from gradring.torch.elastic import TorchState, run
from report import say

gradring.init(policy="elastic min=1")
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
parts = {} if gradring.rank() == 3 else {"schedule": torch.optim.lr_scheduler.StepLR(optimizer, 1)}


@run
def train(state):
    while state.step < 5:
        gradring.allreduce(torch.ones(1).numpy(), name="step")
        state.step += 1
        state.commit()
    say(step=state.step, size=gradring.size())


train(TorchState(model, optimizer, **parts, step=2))
