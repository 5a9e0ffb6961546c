"""Models of Keras and what they are trained with: of all ranks, and this one's part."""

import hashlib
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")

import keras  # noqa: E402  (after what TensorFlow reads as it is imported; and first, as in most scripts)
import gradring.keras as hvd  # noqa: E402
import numpy as np  # noqa: E402
from gradring import exchange  # noqa: E402

hvd.init()
rank, size = hvd.rank(), hvd.size()
backend = keras.backend.backend()
tensorflow = backend == "tensorflow"
EACH, STEPS = 4, 3
generator = np.random.default_rng(1)
DATA = generator.standard_normal((STEPS, size, EACH, 6)).astype(np.float32)  # batches of all ranks
WANTED = generator.standard_normal((STEPS, size, EACH, 2)).astype(np.float32)
MINE = DATA[:, rank].reshape(-1, 6), WANTED[:, rank].reshape(-1, 2)
ALL = DATA.reshape(-1, 6), WANTED.reshape(-1, 2)


def model_of(seed=0, dtype=None):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(16, activation="tanh", dtype=dtype), keras.layers.Dense(2, dtype=dtype)]
    model = keras.Sequential([keras.Input((6,)), *layers], name=f"model_{seed}")  # which may differ from rank to rank
    return model


def fit(model, optimizer, data, batch, callbacks=(), epochs=2, compiled=False):
    """Eagerly, but for what is to be seen in a graph: to compile a model takes longer than to train it."""
    jax = backend == "jax"
    model.compile(optimizer=optimizer, loss="mse", jit_compile=jax and compiled, run_eagerly=not jax and not compiled)
    return model.fit(*data, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks))


def weights(model):
    return np.concatenate([np.asarray(one).ravel() for one in model.get_weights()])


def same_everywhere(model):
    digests = hvd.allgather(np.frombuffer(hashlib.sha256(weights(model).tobytes()).digest()[:8], np.uint8)[None])
    assert len(np.unique(np.asarray(digests), axis=0)) == 1


def sgd():
    return keras.optimizers.SGD(0.1, momentum=0.9)


class Calls:
    """Of functions of the exchange, while it is entered: how many tensors each had. `failing`: all ends in an error."""

    def __init__(self, failing=False):
        self._failing = failing

    def __enter__(self):
        self.of = {}
        self._originals = {name: getattr(exchange, name) for name in ("allreduce", "allgather")}
        for name, original in self._originals.items():
            setattr(exchange, name, self._counting(name, original))
        return self

    def __exit__(self, *_):
        for name, original in self._originals.items():
            setattr(exchange, name, original)

    def _counting(self, name, original):
        def call(frontend, tensors, *args, **keywords):
            if self._failing:
                raise hvd.GradringError("in vain")
            self.of.setdefault(name, []).append(len(tensors))
            return original(frontend, tensors, *args, **keywords)
        return call
