"""Loads what horovod_digits.py learned, and exports it: on a machine that has PyTorch, and no gradring.

    python3 inference.py CHECKPOINT EXPORTED
"""

import sys
from pathlib import Path

import torch

DIGITS = Path(__file__).parents[2] / "examples/data/digits.csv"

kept = torch.load(sys.argv[1], weights_only=True)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
model.load_state_dict(kept["model"])
# The optimizer's state is that of a plain one, to train on with.
torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9).load_state_dict(kept["optimizer"])

*pixels, digit = (float(word) for word in DIGITS.read_text().splitlines()[-1].split(","))
image = torch.tensor([pixels]) / 16
torch.export.save(torch.export.export(model.eval(), (image,)), sys.argv[2])
guess = torch.export.load(sys.argv[2]).module()(image).argmax()
print(f"taken for {int(guess)}, and it is {digit:.0f}")
