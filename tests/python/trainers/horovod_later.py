"""What is trained is not what it was when DistributedOptimizer was made. Says "ok" for each."""

import gradring.torch as hvd
import torch
from report import say

hvd.init()


def layers():
    torch.manual_seed(1)
    return torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])


def wrapped(made, parameters, **how):
    optimizer = torch.optim.SGD(parameters, lr=0.1, weight_decay=0.1)
    return hvd.DistributedOptimizer(optimizer, named_parameters=made.named_parameters(), **how)


def backward(made):
    rows = torch.full((2, 4), hvd.rank() + 1.0)
    for layer in made:
        rows = layer(rows)
    rows.square().sum().backward()


def step(made, optimizer, closure=False):
    optimizer.zero_grad()
    if not closure:
        backward(made)
    optimizer.step((lambda: backward(made)) if closure else None)
    flat = torch.cat([one.detach().flatten() for one in made.parameters()])
    assert all(torch.equal(one, flat) for one in hvd.allgather(flat.unsqueeze(0))), "ranks have different parameters"


def unfrozen(**how):
    made = layers()
    made[0].requires_grad_(False)
    optimizer = wrapped(made, made.parameters(), **how)
    step(made, optimizer)
    before = made[0].weight.clone()
    made[0].requires_grad_(True)
    for _ in range(2):  # exchanged at the end, and during backward()
        step(made, optimizer)
    assert not torch.equal(before, made[0].weight)


def unfrozen_in_place_of_others():
    made = layers()
    made[0].requires_grad_(False)
    optimizer = wrapped(made, made.parameters())
    made.requires_grad_(False)
    made[0].requires_grad_(True)
    step(made, optimizer, closure=True)


def unfrozen_with_adasum():
    unfrozen(op=hvd.Adasum)


def added():
    made = layers()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(made[1:].parameters(), lr=0.1))
    step(made, optimizer)
    optimizer.add_param_group({"params": list(made[0].parameters())})
    for _ in range(2):
        step(made, optimizer)


def frozen():
    for groups in (None, 2, 1):
        made = layers()
        optimizer = wrapped(made, made.parameters(), groups=groups)
        step(made, optimizer)
        made[0].requires_grad_(False)
        before = made[0].weight.clone()
        for _ in range(2):
            step(made, optimizer)
        assert torch.equal(before, made[0].weight), "what is frozen does not decay"


for check in (unfrozen, unfrozen_in_place_of_others, unfrozen_with_adasum, added, frozen):
    check()
    say(ok=check.__name__)
hvd.shutdown()
