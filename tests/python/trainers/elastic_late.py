"""Elastic training of two models, one by Adasum and one by gradients in groups, until two ranks have gone some steps together. Says that
it has begun, and the weights at the end."""

import time

import gradring
import gradring.torch as hvd
import torch
from gradring.torch.elastic import TorchState, run
from report import say

gradring.init(policy="elastic min=1 max=2")


def trained(**options):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, hvd.DistributedOptimizer(sgd, model.named_parameters(), **options)


pairs = [trained(op=hvd.Adasum), trained(groups=2)]


@run
def train(state):
    say(begun=True)
    while state.together < 3:
        for model, optimizer in pairs:
            optimizer.zero_grad()
            model(torch.full((2, 3), 1.0 + gradring.rank())).square().mean().backward()
            optimizer.step()
        state.together += gradring.size() == 2
        time.sleep(0.05)
        state.commit()


train(TorchState(**{f"{kind}{i}": one for i, pair in enumerate(pairs) for kind, one in zip(("model", "optimizer"), pair, strict=True)},
                 together=0))
say(weights=[one.tolist() for model, _ in pairs for one in model.state_dict().values()])
