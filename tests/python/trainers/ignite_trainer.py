"""Ignite's engine, on the backend gradring, and then by Horovod's names. Says what came of each."""

import hashlib

import gradring.torch  # noqa: F401  (makes the backend known)
import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.engine import create_supervised_trainer
from report import say


def train(parallel):
    torch.manual_seed(idist.get_rank())  # each begins elsewhere
    points = torch.randn(64, 8)
    model = parallel(torch.nn.Linear(8, 1))
    optimizer = idist.auto_optim(torch.optim.SGD(model.parameters(), lr=0.05))
    data = idist.auto_dataloader(torch.utils.data.TensorDataset(points, points.sum(1, keepdim=True)), batch_size=16)
    create_supervised_trainer(model, optimizer, torch.nn.functional.mse_loss).run(data, 2)
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    say(kind=idist.model_name(), size=idist.get_world_size(), ranks=idist.all_gather(idist.get_rank()),
        word=idist.broadcast("from 1" if idist.get_rank() == 1 else "mine", src=1, safe_mode=True),
        sum=idist.all_reduce(idist.get_rank() + 1.0), digest=hashlib.sha256(weights.numpy().tobytes()).hexdigest())


dist.init_process_group("gradring")
train(torch.nn.parallel.DistributedDataParallel)  # auto_model wraps for the backends alone that it knows
idist.finalize()  # the process group, too
idist.initialize("horovod")
train(idist.auto_model)
idist.finalize()
