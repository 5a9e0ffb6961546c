"""Large batches: the optimizers LAMB and LARS, a learning rate that is warmed up, and gradients of several passes in one exchange.

    torchrun --nproc-per-node 4 large_batch.py --optimizer lars
"""

import argparse
import contextlib
from pathlib import Path

import gradring.torch
import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DIGITS = Path(__file__).parents[2] / "examples/data/digits.csv"  # 64 grey values, then the digit they show
USUAL_BATCH, PASSES = 32, 2


# Gradients are exchanged when backward() is over, so all ranks find the same trust ratios without another exchange.
def trust_ratio(size, length):
    """Of a layer's weights to its step, by their norms; 1 where one of them is 0."""
    return torch.where((size > 0) & (length > 0), size / length, 1.0)


class Lamb(torch.optim.Optimizer):
    """You and others, ICLR 2020: Adam, each layer's step made as long as its weights are large."""

    # The rate grows with the square root of the batch.
    GROWTH = 0.5

    def __init__(self, params, lr=0.01, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            fast, slow = group["betas"]
            for param in group["params"]:
                state = self.state[param]
                if not state:
                    state.update(step=0, mean=torch.zeros_like(param), square=torch.zeros_like(param))
                state["step"] += 1
                state["mean"].lerp_(param.grad, 1 - fast)
                state["square"].lerp_(param.grad.square(), 1 - slow)
                mean = state["mean"] / (1 - fast ** state["step"])
                square = state["square"] / (1 - slow ** state["step"])
                update = mean / (square.sqrt() + group["eps"]) + group["weight_decay"] * param
                state["ratio"] = trust_ratio(param.norm(), update.norm())
                param.sub_(update * (group["lr"] * state["ratio"]))


class Lars(torch.optim.Optimizer):
    """You and others, 2017: SGD with momentum, each layer's gradient made as long as a share, `trust`, of its weights."""

    # The rate grows with the batch itself.
    GROWTH = 1.0

    def __init__(self, params, lr=0.1, momentum=0.9, trust=0.01, weight_decay=1e-4):
        super().__init__(params, {"lr": lr, "momentum": momentum, "trust": trust, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if not state:
                    state["velocity"] = torch.zeros_like(param)
                size, decay = param.norm(), group["weight_decay"]
                state["ratio"] = group["trust"] * trust_ratio(size, param.grad.norm() + decay * size)
                update = (param.grad + decay * param) * (group["lr"] * state["ratio"])
                state["velocity"].mul_(group["momentum"]).add_(update)
                param.sub_(state["velocity"])


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--optimizer", choices=("lamb", "lars"), default="lamb")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--batch", type=int, default=512, help="of all ranks and passes together")
parser.add_argument("--weights", help="where each rank puts its weights, as FILE.RANK.npy")
args = parser.parse_args()

dist.init_process_group("gradring")
rank, size = dist.get_rank(), dist.get_world_size()

table = torch.from_numpy(np.loadtxt(DIGITS, delimiter=",", dtype=np.float32))
images, labels = table[:, :64] / 16, table[:, 64].long()
train, test = slice(0, 1536), slice(1536, None)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
model = DistributedDataParallel(model)
optimizer = (Lars if args.optimizer == "lars" else Lamb)(model.parameters())
growth = (args.batch / USUAL_BATCH) ** optimizer.GROWTH
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, gradring.torch.schedules.warmup(10, growth))

share = args.batch // size // PASSES
for epoch in range(args.epochs):
    order = torch.randperm(len(images[train]), generator=torch.Generator().manual_seed(epoch))
    losses = []
    for batch in order.split(args.batch):
        optimizer.zero_grad()
        for number in range(PASSES):
            begin = (rank * PASSES + number) * share
            mine = batch[begin:begin + share]
            with model.no_sync() if number < PASSES - 1 else contextlib.nullcontext():  # the last alone exchanges
                loss = torch.nn.functional.cross_entropy(model(images[mine]), labels[mine]) / PASSES
                loss.backward()
            losses.append(loss.item() * PASSES)
        optimizer.step()
        scheduler.step()
    with torch.no_grad():
        right = (model.module(images[test]).argmax(1) == labels[test]).float().mean()
    figures = gradring.torch.average_metrics({"loss": np.mean(losses), "accuracy": right})
    ratios = torch.stack([optimizer.state[one]["ratio"] for one in model.parameters()])
    least, most = ratios.clone(), ratios.clone()
    dist.all_reduce(least, dist.ReduceOp.MIN)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    if not torch.equal(least, most):
        raise SystemExit(f"ranks have come apart: a layer's trust ratios are {least.tolist()} and {most.tolist()}")
    if rank == 0:
        print(f"epoch {epoch}: loss {figures['loss']:.4f}, accuracy {figures['accuracy']:.3f}, trust ratios {ratios.min():.4f} to "
              f"{ratios.max():.4f}", flush=True)

if args.weights:
    np.save(f"{args.weights}.{rank}.npy", torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy())
dist.destroy_process_group()
