"""Trains a network on images until it is right often enough, and says how good and how fast it is.

    torchrun --nproc-per-node 4 train.py --desired-acc 95
    python3 train.py --dist-url tcp://host-0:29400 --world-size 8 --rank 3 --desired-acc 95

The images are handwritten digits of 8 x 8 pixels, one a line: 64 values up to 16, then the digit. For images of your
own put another Dataset in the place of `Digits`, and another model in that of `network()`; nothing else changes.
"""

import argparse
import json
import os
import time
from pathlib import Path

import gradring.torch  # noqa: F401  (makes the backend known)
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

DIGITS = Path(__file__).parents[3] / "examples/data/digits.csv"


class Digits(Dataset):
    """Every fifth image is for the test, the others are to be learned."""

    def __init__(self, file, test):
        rows = [[float(word) for word in line.split(",")] for line in file.read_text().splitlines()]
        rows = torch.tensor([row for i, row in enumerate(rows) if (i % 5 == 0) == test])
        self.images, self.labels = rows[:, :64].reshape(-1, 1, 8, 8) / 16, rows[:, 64].long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def network():
    return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, 10))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="?", type=Path, default=DIGITS, help="the images")
    parser.add_argument("--desired-acc", type=float, default=95.0, help="percent of top-1 at which to stop")
    parser.add_argument("--epochs", type=int, default=20, help="at most")
    parser.add_argument("-b", "--batch-size", type=int, default=128, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dist-backend", default="gradring")
    parser.add_argument("--dist-url", default="env://", help="where ranks meet, such as tcp://HOST:PORT")
    parser.add_argument("--world-size", type=int, default=int(os.environ.get("WORLD_SIZE", "-1")))
    parser.add_argument("--rank", type=int, default=int(os.environ.get("RANK", "-1")))
    parser.add_argument("--results", type=Path, help="a file for the curves, JSON")
    return parser.parse_args()


def mean_over_ranks(*values):
    """Weighted by the first, which is a number of images."""
    totals = torch.tensor([values[0], *(value * values[0] for value in values[1:])], dtype=torch.float64)
    dist.all_reduce(totals)
    return [float(total / totals[0]) for total in totals[1:]]


def train(model, loader, optimizer):
    """The mean loss of the epoch."""
    model.train()
    total = seen = 0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total, seen = total + float(loss.detach()) * len(labels), seen + len(labels)
    return mean_over_ranks(seen, total / seen)[0]


@torch.no_grad()
def test(model, dataset):
    """Percent of the images that the best guess is right for, and one of the best five; each rank looks at a share."""
    model.eval()
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    labels = dataset.labels[mine]
    guesses = model(dataset.images[mine]).topk(5).indices
    right = guesses == labels[:, None]
    return mean_over_ranks(len(labels), 100 * right[:, :1].sum() / len(labels), 100 * right.sum() / len(labels))


def main():
    options = parse()
    place = {} if options.rank < 0 else {"rank": options.rank, "world_size": options.world_size}
    dist.init_process_group(options.dist_backend, init_method=options.dist_url, **place)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(options.seed)
    # Without the mean over a batch's own statistics, any number of ranks learns the same from the same whole batch.
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), options.lr, options.momentum)
    learned, tested = Digits(options.data, test=False), Digits(options.data, test=True)
    sampler = DistributedSampler(learned, seed=options.seed, drop_last=True)
    loader = DataLoader(learned, max(options.batch_size // size, 1), sampler=sampler, drop_last=True)
    curve, began = [], time.monotonic()
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        started = time.monotonic()
        loss = train(model, loader, optimizer)
        seconds = time.monotonic() - started
        top1, top5 = test(model, tested)
        images = len(loader) * loader.batch_size * size
        curve.append({"epoch": epoch, "loss": loss, "top1": top1, "top5": top5, "images_per_second": images / seconds})
        if rank == 0:
            print(f"epoch {epoch:3}  loss {loss:6.3f}  top-1 {top1:5.1f} %  top-5 {top5:5.1f} %  "
                  f"{images / seconds:9.0f} images/s", flush=True)
        if top1 >= options.desired_acc:
            break
    told = {"backend": options.dist_backend, "ranks": size, "reached": curve[-1]["top1"] >= options.desired_acc,
            "seconds": time.monotonic() - began, "curve": curve, "pid": os.getpid()}
    if rank == 0:
        verdict = "reached" if told["reached"] else "not reached"
        print(f"{options.desired_acc:g} % {verdict} in {told['seconds']:.1f} s and {len(curve)} epochs on {size} ranks")
        if options.results:
            options.results.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
