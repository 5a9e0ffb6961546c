"""Optimizers whose state is of other types than their parameters: ranks that are handed it go on as the root does. Says "ok" for
each."""

import copy

import gradring.torch as hvd
import torch
from report import say

hvd.init()
rank = hvd.rank()


class Mixed(torch.optim.Optimizer):
    """Steps bfloat16 parameters by way of float32 ones of its own."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for one in self.param_groups[0]["params"]:
            state = self.state[one]
            if not state:
                state |= {"wide": one.float(), "count": torch.tensor(2**25 + 1), "kept": torch.ones_like(one, dtype=torch.bool),
                          "history": [torch.full_like(one, 1 / 3, dtype=torch.float64), (torch.tensor(7), 2)]}
            state["wide"] -= self.param_groups[0]["lr"] * one.grad.float() / 3
            state["count"] += 1
            one.copy_(state["wide"])


def trained(steps):
    torch.manual_seed(rank)
    model = torch.nn.Linear(4, 3, dtype=torch.bfloat16)
    optimizer = Mixed(model.parameters())
    for _ in range(steps):
        backward(model, rank)
        optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def backward(model, seed):
    rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed)).bfloat16()
    model(rows).float().square().sum().backward()


def state_of(optimizer):
    return copy.deepcopy(optimizer.state_dict()["state"])


def as_the_root_has_it():
    for steps in (1 if rank == 1 else 0, rank + 1):  # others have none yet, or another
        model, optimizer = trained(steps)
        hvd.broadcast_parameters(model.state_dict(), root_rank=1)
        hvd.broadcast_optimizer_state(optimizer, root_rank=1)
        states = hvd.allgather_object(state_of(optimizer))
        torch.testing.assert_close(states, [states[1]] * hvd.size(), rtol=0, atol=0)
        assert states[0][0]["count"].dtype == torch.int64 and states[0][0]["wide"].dtype == torch.float32
        distributed = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        for step in range(5):
            distributed.zero_grad()
            backward(model, 10 * step + rank)
            distributed.step()
        weights = hvd.allgather(torch.cat([one.detach().flatten() for one in model.parameters()]).unsqueeze(0))
        assert (weights == weights[0]).all(), "ranks have different parameters"


def in_elastic_training():
    model, optimizer = trained(1)
    kept = state_of(optimizer)
    state = hvd.elastic.TorchState(model, optimizer)
    for _ in range(2):
        backward(model, rank)
        optimizer.step()
        state.restore()
        torch.testing.assert_close(state_of(optimizer), kept, rtol=0, atol=0)
    state.sync()
    states = hvd.allgather_object((state_of(optimizer), kept))
    torch.testing.assert_close([one for one, _ in states], [states[0][1]] * hvd.size(), rtol=0, atol=0)


for check in (as_the_root_has_it, in_elastic_training):
    check()
    say(ok=check.__name__)
hvd.shutdown()
