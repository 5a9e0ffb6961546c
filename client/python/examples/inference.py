"""Loads what horovod_digits.py learned, and exports it: on a machine that has PyTorch, and no gradring.

    python3 inference.py CHECKPOINT EXPORTED
"""

import argparse
from pathlib import Path

import torch

DIGITS = Path(__file__).parents[2] / "examples/data/digits.csv"

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("checkpoint", help="what horovod_digits.py --checkpoint has written")
parser.add_argument("exported", help="a file for the exported model")
args = parser.parse_args()

kept = torch.load(args.checkpoint, weights_only=True)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
model.load_state_dict(kept["model"])
# The optimizer's state is that of a plain one, to train on with.
torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9).load_state_dict(kept["optimizer"])

*pixels, digit = (float(word) for word in DIGITS.read_text().splitlines()[-1].split(","))
image = torch.tensor([pixels]) / 16
torch.export.save(torch.export.export(model.eval(), (image,)), args.exported)
guess = torch.export.load(args.exported).module()(image).argmax()
print(f"taken for {int(guess)}, and it is {digit:.0f}")
