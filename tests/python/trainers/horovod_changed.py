"""Gradients that are changed while they are exchanged are refused, on all ranks alike. Says "ok" for each."""

import gradring.torch as hvd
import torch
from expect import refused
from report import say

hvd.init()
rank, size = hvd.rank(), hvd.size()


def made(**how):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return model, hvd.DistributedOptimizer(optimizer, model.named_parameters(), **how)


def backward(model, scaler=None):
    loss = model(torch.full((2, 4), rank + 1.0)).square().sum()
    (loss if scaler is None else scaler.scale(loss)).backward()


def clip(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)


def goes_on(model, optimizer, scaler=None):
    """As it has to be done; and what was refused has left nothing behind."""
    optimizer.zero_grad()
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    backward(model, scaler)
    optimizer.synchronize()
    if scaler is not None:
        scaler.unscale_(optimizer)
    clip(model)
    with optimizer.skip_synchronize():
        optimizer.step() if scaler is None else scaler.step(optimizer)
    after = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    assert torch.isclose((after - before).norm(), torch.tensor(0.5), rtol=1e-3)
    everybody = hvd.allgather(after.unsqueeze(0))
    assert (everybody == everybody[0]).all(), "ranks have different parameters"


def clipped_too_early():
    for how in ({}, {"groups": 1}, {"compression": hvd.Compression.fp16}):
        model, optimizer = made(**how)
        for end in (optimizer.step, optimizer.synchronize):
            backward(model)
            clip(model)
            refused(AssertionError, "was changed after backward", end)
            goes_on(model, optimizer)


def zeroed_by_the_model():
    model, optimizer = made()
    for to_none in (True, False):
        backward(model)
        model.zero_grad(set_to_none=to_none)
        refused(AssertionError, "was changed after backward", optimizer.step)
        goes_on(model, optimizer)


def scaled_back_too_early():
    model, optimizer = made()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    backward(model, scaler)
    refused(AssertionError, "GradScaler", scaler.step, optimizer)
    optimizer.synchronize()
    goes_on(model, optimizer, scaler)
    scaler.update()
    optimizer._step_supports_amp_scaling = True  # as fused ones do
    assert optimizer._step_supports_amp_scaling


for check in (clipped_too_early, zeroed_by_the_model, scaled_back_too_early):
    check()
    say(ok=check.__name__)
hvd.shutdown()
