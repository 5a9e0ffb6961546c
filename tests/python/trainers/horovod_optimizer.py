"""DistributedOptimizer against one process that trains on the batches of all ranks. Says "ok" for each."""

import copy
import gc
import warnings

import gradring.torch as hvd
import torch
from expect import refused
from report import say

hvd.init()
rank, size = hvd.rank(), hvd.size()
STEPS, ROWS = 3, 4  # ROWS of each rank in each pass
EXACT = 1e-6


class Model(torch.nn.Module):
    def __init__(self, width=6, dtype=torch.float64):
        super().__init__()
        self.into = torch.nn.Linear(width, width, dtype=dtype)
        self.out = torch.nn.Linear(width, 2, dtype=dtype)
        self.unused = torch.nn.Parameter(torch.ones(3, dtype=dtype))

    def forward(self, rows):
        return self.out(torch.tanh(self.into(rows)))


def loss_of(model, rows):
    return model(rows).square().mean()


def batches(width=6, dtype=torch.float64, passes=1):
    """[step][pass][rank], the same on all ranks."""
    made = torch.Generator().manual_seed(7)
    return torch.randn(STEPS, passes, size, ROWS, width, generator=made, dtype=dtype)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)


def models(**how):
    torch.manual_seed(1)
    model = Model(**how)
    return model, copy.deepcopy(model)


def equal_on(model, process_set=hvd.global_process_set):
    """Bit for bit."""
    flat = torch.cat([one.detach().flatten() for one in model.parameters()])
    everybody = hvd.allgather(flat.unsqueeze(0), process_set=process_set)
    assert all(torch.equal(one, flat) for one in everybody), "ranks have different parameters"


def same(model, oracle, tolerance):
    for (name, one), other in zip(model.named_parameters(), oracle.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=tolerance, atol=tolerance), (name, (one - other).abs().max())


def oracle_steps(oracle, optimizer, data, ranks, scale=1.0):
    """Sums of passes, means of ranks."""
    for step in data:
        optimizer.zero_grad()
        for one in step:
            (loss_of(oracle, one[ranks].flatten(0, 1)) * scale).backward()
        oracle.unused.grad = torch.zeros_like(oracle.unused)  # as those of which nobody has a gradient
        optimizer.step()


def train(tolerance=EXACT, width=6, dtype=torch.float64, make=sgd, scale=1.0, ranks=None, groups=None, **options):
    model, oracle = models(width=width, dtype=dtype)
    if groups == "lists":
        groups = [[model.into.weight, model.out.bias], [model.unused, model.into.bias]]
    passes = options.get("backward_passes_per_step", 1)
    optimizer = hvd.DistributedOptimizer(make(model), named_parameters=model.named_parameters(), groups=groups,
                                         **options)
    data = batches(width, dtype, passes)
    for step in data:
        optimizer.zero_grad()
        for one in step:
            loss_of(model, one[rank]).backward()
        optimizer.step()
    oracle_steps(oracle, make(oracle), data, ranks or list(range(size)), scale)
    same(model, oracle, tolerance)
    equal_on(model, options.get("process_set", hvd.global_process_set))


def plain():
    train()
    train(make=lambda model: torch.optim.Adam(model.parameters(), lr=0.01))
    train(op=hvd.Sum, scale=size)


def several_passes():
    train(backward_passes_per_step=2)
    train(backward_passes_per_step=2, groups=2)


def compressed():
    large = {"width": 256, "dtype": torch.float32}
    train(compression=hvd.Compression.fp16, tolerance=1e-3, **large)
    train(compression=hvd.Compression.bf16, tolerance=1e-2, **large)
    train(compression=hvd.Compression.fp16, tolerance=1e-3)  # float64, which is cast


def divided_before():
    train(gradient_predivide_factor=3.0)
    refused(ValueError, "Average", hvd.DistributedOptimizer, sgd(Model()), op=hvd.Sum, gradient_predivide_factor=2.0)


def grouped():
    for groups in (1, 2, 100, "lists"):
        train(groups=groups)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        train(num_groups=2)
    assert any("groups" in str(one.message) for one in told)
    weight = torch.nn.Parameter(torch.ones(1))
    for groups, word in ((-1, "at least"), ("x", "lists"), ([[weight], [weight]], "two groups")):
        refused(ValueError, word, hvd.DistributedOptimizer, torch.optim.SGD([weight]), groups=groups)


def in_process_sets():
    even, odd = hvd.add_process_set(range(0, size, 2)), hvd.add_process_set(range(1, size, 2))
    mine = odd if rank % 2 else even
    train(process_set=mine, ranks=mine.ranks)
    model, oracle = models()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), process_set=even)
    own = sgd(oracle)
    for one in batches():
        for part, how in ((model, optimizer), (oracle, own)):
            how.zero_grad()
            loss_of(part, one[0][rank]).backward()
            how.step()
    equal_on(model, mine) if rank % 2 == 0 else same(model, oracle, 0)
    for one in (even, odd):
        hvd.remove_process_set(one)


def sparse():
    for as_dense in (False, True):
        torch.manual_seed(2)
        model = torch.nn.Embedding(10, 3, sparse=True, dtype=torch.float64)
        oracle = copy.deepcopy(model)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(),
                                             sparse_as_dense=as_dense)
        own = torch.optim.SGD(oracle.parameters(), lr=0.1)
        rows = torch.tensor([[one, (one * 2) % 10, 9] for one in range(size)])
        for _ in range(STEPS):
            for part, how, batch in ((model, optimizer, rows[rank]), (oracle, own, rows.flatten())):
                how.zero_grad()
                part(batch).square().mean().backward()
                how.step()
        assert model.weight.grad.is_sparse
        same(model, oracle, EXACT)
        equal_on(model)


def adasum():
    torch.manual_seed(3)
    model, oracle = models()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), op=hvd.Adasum)
    own = sgd(oracle)
    data = batches()
    for part, how, mine in ((model, optimizer, 0), (oracle, own, 0)):  # equal steps end as one of them
        how.zero_grad()
        loss_of(part, data[0][0][mine]).backward()
        how.step()
    same(model, oracle, EXACT)
    for one in data:
        optimizer.zero_grad()
        before = loss_of(model, one[0].flatten(0, 1)).item()
        loss_of(model, one[0][rank]).backward()
        refused(AssertionError, "zero_grad", optimizer.zero_grad)
        optimizer.step()
        assert loss_of(model, one[0].flatten(0, 1)).item() < before
    equal_on(model)
    refused(AssertionError, "skip_synchronize", optimizer.skip_synchronize)


def clipped():
    """synchronize, clip, step without another exchange."""
    model, oracle = models()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    own = sgd(oracle)
    for one in batches():
        optimizer.zero_grad()
        loss_of(model, one[0][rank]).backward()
        refused(AssertionError, "zero_grad", optimizer.zero_grad)
        optimizer.synchronize()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        assert len(set(hvd.allgather_object(norm.item()))) == 1
        with optimizer.skip_synchronize():
            optimizer.step()
        own.zero_grad()
        loss_of(oracle, one[0].flatten(0, 1)).backward()
        oracle.unused.grad = torch.zeros_like(oracle.unused)
        torch.nn.utils.clip_grad_norm_(oracle.parameters(), 0.05)
        own.step()
    same(model, oracle, EXACT)
    equal_on(model)
    loss_of(model, one[0][rank]).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        optimizer.step()
    assert len(told) == 1 and "without optimizer.skip_synchronize()" in str(told[0].message)


def compiled_steps():
    """Dynamo traces around what exchanges gradients."""
    model, oracle = models()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())

    @torch.compile(backend="aot_eager")
    def step(rows):
        optimizer.zero_grad()
        loss_of(model, rows).backward()
        optimizer.step()
    data = batches()
    for one in data:
        step(one[0][rank])
    oracle_steps(oracle, sgd(oracle), data, list(range(size)))
    same(model, oracle, EXACT)
    equal_on(model)


def gradients_that_are_missing():
    """A layer that one rank alone goes through: the others take part with zeros."""
    for groups in (None, 1):
        model, oracle = models()
        optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), groups=groups)
        rows = batches()[0][0]
        (loss_of(model, rows[0]) if rank == 0 else model.unused.sum()).backward()
        optimizer.step()
        own = sgd(oracle)
        ((loss_of(oracle, rows[0]) + (size - 1) * oracle.unused.sum()) / size).backward()
        own.step()
        same(model, oracle, EXACT)
        equal_on(model)


def uneven_data():
    """Rank r has r + 1 batches; those that have no more take part with zeros."""
    model, oracle = models()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    rows = batches()[0][0]
    for _ in range(rank + 1):
        optimizer.zero_grad()
        loss_of(model, rows[rank]).backward()
        optimizer.step()
    last = hvd.join()
    assert last == size - 1
    hvd.broadcast_parameters(model.state_dict(), last)
    own = sgd(oracle)
    for step in range(size):
        own.zero_grad()
        (sum(loss_of(oracle, one) for one in rows[step:]) / size).backward()
        oracle.unused.grad = torch.zeros_like(oracle.unused)
        own.step()
    same(model, oracle, EXACT)
    equal_on(model)


def closures_and_schedules():
    model, oracle = models()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == "SGD"
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    stepped = []
    optimizer.register_step_post_hook(lambda *_: stepped.append(1))
    for i, one in enumerate(batches()):
        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, one[0][rank])  # noqa: B023  (called in this turn)
            loss.backward()
            return loss
        assert optimizer.step(closure) is not None
        schedule.step()
        assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5 ** (i + 1)
        optimizer.load_state_dict(optimizer.state_dict())
    assert len(stepped) == STEPS, stepped
    own = sgd(oracle)
    for i, one in enumerate(batches()):
        own.param_groups[0]["lr"] = 0.1 * 0.5 ** i
        oracle_steps(oracle, own, one[None], list(range(size)))
    same(model, oracle, EXACT)


def schedules_of_what_was_wrapped():
    """They go on with the groups that they began with, whoever loads a state into the optimizer."""
    def broadcast(model, optimizer):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    def sync(model, optimizer):
        hvd.elastic.TorchState(model, optimizer).sync()

    def load(model, optimizer):
        optimizer.load_state_dict(optimizer.state_dict())
    for begin in (broadcast, sync, load):
        for op in (hvd.Average, hvd.Adasum):
            model, _ = models()
            own = torch.optim.SGD(model.parameters(), lr=0.1 * (rank + 1) if begin is broadcast else 0.1)
            schedule = torch.optim.lr_scheduler.StepLR(own, 1, gamma=0.5)
            optimizer = hvd.DistributedOptimizer(own, model.named_parameters(), op=op)
            begin(model, optimizer)
            for one in batches():
                optimizer.zero_grad()
                loss_of(model, one[0][rank]).backward()
                optimizer.step()
                schedule.step()
            assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5 ** STEPS, (begin, rank, optimizer.param_groups[0]["lr"])
            equal_on(model)


def mistakes():
    model = Model()
    pairs = list(model.named_parameters())
    for word, named in (("lacks 3 of", pairs[:2]), ("of one name", [("x", one) for _, one in pairs]), ("pairs", model.parameters())):
        refused(ValueError, word, hvd.DistributedOptimizer, sgd(model), named)
    refused(ValueError, "must be 1", hvd.DistributedOptimizer, sgd(model), pairs, backward_passes_per_step=0)
    optimizer = hvd.DistributedOptimizer(sgd(model), pairs)
    refused(ValueError, "already", hvd.DistributedOptimizer, optimizer, pairs)
    rows = batches()[0][0][rank]
    loss_of(model, rows).backward()
    refused(AssertionError, "more than backward_passes_per_step", loss_of(model, rows).backward)
    optimizer.synchronize()
    optimizer.set_backward_passes_per_step(2)
    optimizer.zero_grad()
    for _ in range(2):
        loss_of(model, rows).backward()
    optimizer.step()
    del optimizer
    gc.collect()
    for _ in range(3):  # of the optimizer that is gone, nothing is left
        loss_of(model, rows).backward()


def states():
    """broadcast_parameters and broadcast_optimizer_state."""
    for kind, options in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.SGD, {}), (torch.optim.Adam, {}),
                          (torch.optim.AdamW, {"amsgrad": True}), (torch.optim.RMSprop, {"centered": True}),
                          (torch.optim.Adagrad, {}), (torch.optim.NAdam, {}), (torch.optim.Rprop, {})):
        torch.manual_seed(rank)
        model = Model()
        optimizer = kind(model.parameters(), lr=0.01 * (rank + 1), **options)
        if kind is torch.optim.Adam:
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        elif rank == 1:
            loss_of(model, batches()[0][0][0]).backward()
            optimizer.step()
        hvd.broadcast_parameters(model.state_dict(), root_rank=1)
        hvd.broadcast_optimizer_state(optimizer, root_rank=1)
        equal_on(model)
        told = hvd.allgather_object(optimizer.state_dict())
        for one in told:
            assert one["param_groups"] == told[1]["param_groups"] and one["param_groups"][0]["lr"] == 0.02
            assert one["state"].keys() == told[1]["state"].keys()
            for key, state in one["state"].items():
                for name, value in state.items():
                    other = told[1]["state"][key][name]
                    assert type(value) is type(other) and (torch.equal(value, other) if torch.is_tensor(value)
                                                           else value == other), (kind, name)
        before = [one.detach().clone() for one in model.parameters()]
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert all(torch.equal(one, other) for one, other in zip(model.parameters(), before, strict=True))
    hvd.broadcast_parameters(model.named_parameters(), root_rank=0)
    hvd.broadcast_parameters(list(model.parameters()), root_rank=0)
    refused(ValueError, "takes a dict", hvd.broadcast_parameters, 3, 0)
    refused(ValueError, "LBFGS", hvd.broadcast_optimizer_state, torch.optim.LBFGS(model.parameters()), 0)


def states_to_go_back_to():
    """What was synced, or saved last, whatever has become of the model meanwhile."""
    torch.manual_seed(rank)
    model = Model()
    optimizer = sgd(model)
    state = hvd.elastic.TorchState(model, optimizer, step=0)
    for keep in (state.sync, state.save):
        optimizer.zero_grad()
        loss_of(model, batches()[0][0][0]).backward()
        optimizer.step()
        keep()
        kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()["state"]))
        for _ in range(2):  # what was kept is still so after the first
            optimizer.step()
            state.step = 7
            state.restore()
            torch.testing.assert_close((model.state_dict(), optimizer.state_dict()["state"]), kept, rtol=0, atol=0)
            assert state.step == 0
    equal_on(model)


for check in (plain, several_passes, compressed, divided_before, grouped, in_process_sets, sparse, adasum, clipped, compiled_steps,
              gradients_that_are_missing, uneven_data, closures_and_schedules, schedules_of_what_was_wrapped, mistakes, states,
              states_to_go_back_to):
    check()
    say(ok=check.__name__)
hvd.shutdown()
