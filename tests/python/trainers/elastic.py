"""Elastic training of a line through points, until all four ranks were there again for some steps. STORE STEPS

Says its place at each step and the weights at the end.
"""

import os
import sys
import time

import gradring
import torch
from gradring.torch.elastic import ElasticSampler, TorchState, run
from report import say

STEPS = int(sys.argv[2])
gradring.init(policy="elastic min=1 max=8")
torch.manual_seed(gradring.rank())  # each begins elsewhere, so that only the sync makes them alike
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
points = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
goals = points @ torch.tensor([[1.0], [2.0], [3.0], [4.0]])
sampler = ElasticSampler(range(64))


def step():
    optimizer.zero_grad()
    mine = list(sampler)[:4]
    torch.nn.functional.mse_loss(model(points[mine]), goals[mine]).backward()
    for name, parameter in model.named_parameters():
        gradring.allreduce(parameter.grad.numpy(), name=name, out=parameter.grad.numpy())
    optimizer.step()


@run
def train(state):
    while state.step < state.until or gradring.size() < 4:
        step()
        state.step += 1
        sampler.record_batch(0, 4)
        say(step=state.step, rank=gradring.rank(), size=gradring.size(), pid=os.getpid())
        time.sleep(0.05)
        if len(sampler.processed_indices) > 32:
            sampler.set_epoch(sampler.epoch + 1)
        state.commit()


state = TorchState(model, optimizer, sampler=sampler, step=0, until=STEPS)
resets = []


def note_reset():
    resets.append(gradring.size())
    state.until = state.step + 10


state.register_reset_callbacks([note_reset])
train(state)
say(weights=[float(one) for one in model.weight.detach().reshape(-1)], resets=resets, size=gradring.size())
