"""Trains on when ranks are lost, and when they come back.

    gradring-run -np 4 --policy "elastic min=1" --restarts 3 python3 elastic_digits.py

Kill one of the processes to see it.
"""

import argparse
import time
from pathlib import Path

import gradring.torch as hvd
import numpy as np
import torch
from torch import nn

DIGITS = Path(__file__).parents[2] / "examples/data/digits.csv"  # 64 grey values, then the digit they show
BATCH, LEARNING_RATE = 16, 0.02  # of each rank; for one


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0, help="seconds after each step")
    options = parser.parse_args()
    hvd.init()
    table = torch.from_numpy(np.loadtxt(DIGITS, delimiter=",", dtype=np.float32))
    images, labels = table[:, :64] / 16, table[:, 64].long()
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), LEARNING_RATE * hvd.size()),
                                         named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(1536))

    @hvd.elastic.run
    def train(state):
        while state.epoch < options.epochs:
            indices = list(sampler)
            for number in range(len(indices) // BATCH):
                batch = indices[number * BATCH:(number + 1) * BATCH]
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
                optimizer.step()
                sampler.record_batch(number, BATCH)
                time.sleep(options.pause)
                state.commit()  # ranks come in here, and whoever is left learns that others are gone
            with torch.no_grad():
                right = (model(images[1536:]).argmax(1) == labels[1536:]).float().mean()
            if hvd.rank() == 0:
                print(f"epoch {state.epoch}: {100 * right:.1f} % right, on {hvd.size()} ranks", flush=True)
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            state.commit()

    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)

    def adapt():
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * hvd.size()
        print(f"rank {hvd.rank()} goes on as one of {hvd.size()}", flush=True)
    state.register_reset_callbacks([adapt])
    train(state)


if __name__ == "__main__":
    main()
