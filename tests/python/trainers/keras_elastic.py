"""Elastic training of a Keras model. STORE EPOCHS eager|sparse|alone; says its place after each batch, and the weights
at the end. `sparse`: in a graph, with gradients that are gathered. `alone`: in a graph, and rank 1 goes back alone."""

import os
import sys
import time

os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from report import say  # noqa: E402

import gradring.keras as hvd  # noqa: E402
from gradring.keras import elastic  # noqa: E402
from gradring.tensorflow.elastic import TensorFlowState  # noqa: E402

EPOCHS, HOW = int(sys.argv[2]), sys.argv[3]
hvd.init(policy="elastic min=1")
keras.utils.set_random_seed(hvd.rank())  # each begins elsewhere, so that only the sync makes them alike
points = np.random.default_rng(1).standard_normal((32, 4)).astype(np.float32)
goals = points @ np.array([[1], [2], [3], [4]], np.float32)
first = [keras.Input((4,))]
if HOW == "sparse":
    points = np.arange(32).reshape(32, 1) % 7
    first = [keras.Input((1,), dtype="int32"), keras.layers.Embedding(7, 3), keras.layers.Flatten()]
model = keras.Sequential([*first, keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), "mse", run_eagerly=HOW == "eager", jit_compile=False)
resets = []


class GoBack(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if HOW == "alone" and hvd.rank() == 1 and state.epoch == 1 and batch == 1 and not resets:
            raise elastic.HorovodInternalError("of this rank alone")


class Say(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        say(step=state.batch, epoch=state.epoch, size=hvd.size(), pid=os.getpid())
        time.sleep(0.05)


@elastic.run
def train(state):
    # Until it has gone on without somebody for an epoch or more.
    while state.epoch < EPOCHS or not resets:
        model.fit(points, goals, batch_size=8, epochs=1, verbose=0, shuffle=False,
                  callbacks=[GoBack(), elastic.UpdateBatchStateCallback(state), elastic.UpdateEpochStateCallback(state), Say(),
                             elastic.CommitStateCallback(state, batches_per_commit=2)])


state = elastic.KerasState(model, epoch=0, batch=0)
state.register_reset_callbacks([lambda: resets.append(hvd.size())])
train(state)

trained = [float(one) for one in np.ravel(model.get_weights()[0])]
model.compile("adam")
model.optimizer.iterations.assign(5 + hvd.rank())
state.sync()

variable = tf.Variable([float(hvd.rank()), 7.0])
variables = TensorFlowState([variable], number=hvd.rank())
variables.sync()
synced = [float(one) for one in variable.numpy()] + [variables.number, int(model.optimizer.iterations)]
variable.assign([9.0, 9.0])
variables.restore()
assert variable.numpy()[1] == 7.0
say(synced=synced, weights=trained, resets=resets, epoch=state.epoch)
