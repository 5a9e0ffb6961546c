"""A classifier of handwritten digits, trained with Keras 3.

    gradring-run -np 4 python3 keras_digits.py
"""

import argparse
from pathlib import Path

import gradring.keras as hvd  # was: import horovod.keras as hvd
import keras
import numpy as np

DIGITS = Path(__file__).parents[2] / "examples/data/digits.csv"  # 64 grey values, then the digit they show

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch", type=int, default=64, help="of all ranks together")
parser.add_argument("--weights", help="where each rank puts its weights, as FILE.RANK.npy")
args = parser.parse_args()

hvd.init()
table = np.loadtxt(DIGITS, delimiter=",", dtype=np.float32)
images, labels = table[:, :64] / 16, table[:, 64].astype(int)
train, test = slice(hvd.rank(), 1536, hvd.size()), slice(1536, None)  # each rank learns its share

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)),
              keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"], jit_compile=False)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
model.fit(images[train], labels[train], args.batch // hvd.size(), args.epochs, shuffle=False, verbose=0,
          callbacks=callbacks)
accuracy = model.evaluate(images[test], labels[test], verbose=0)[1]
if hvd.rank() == 0:
    print(f"after {args.epochs} epochs: accuracy {accuracy:.3f}", flush=True)

if args.weights:
    np.save(f"{args.weights}.{hvd.rank()}.npy", np.concatenate([one.ravel() for one in model.get_weights()]))
hvd.shutdown()
