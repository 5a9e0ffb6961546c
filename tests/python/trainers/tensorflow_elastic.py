"""Functions that TensorFlow has traced with four ranks, run by the three that are left when rank 0 is lost. STORE"""

import os
import sys
import time

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")

import tensorflow as tf  # noqa: E402
import gradring.tensorflow as hvd  # noqa: E402
from expect import close  # noqa: E402
from gradring.elastic import HostsUpdatedInterrupt, ObjectState  # noqa: E402
from report import say  # noqa: E402

hvd.init(policy="elastic min=1")


def slope(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
        loss = tf.reduce_sum(y * tf.range(1.0, 1.0 + tf.cast(tf.shape(y)[0], tf.float32)))
    return tape.gradient(loss, x)


@tf.function
def traced(rows):
    slices = tf.IndexedSlices(rows, tf.constant([0]), dense_shape=[3])
    return (tf.convert_to_tensor(hvd.allreduce(slices)), slope(hvd.allgather, rows),
            slope(lambda x: hvd.broadcast(x, 1), rows),
            slope(lambda x: hvd.reducescatter(x, op=hvd.Sum), tf.repeat(rows, 12)))


normalize = tf.function(lambda layer, data: layer(data, training=True), reduce_retracing=True)
layer = hvd.SyncBatchNormalization(epsilon=0.0, center=False, scale=False)


def check():
    rank, size = hvd.rank(), hvd.size()
    mean, gathered, sent, scattered = traced(tf.constant([6.0]))
    close(mean, [6, 0, 0])
    close(gathered, [rank + 1])
    close(sent, [1.0 if rank == 1 else 0.0])
    each = 12 // size
    close(scattered, [size * (1 + i % each) for i in range(12)])
    data = tf.constant([[float(rank)], [float(size)]])
    everybody = [*range(size), *[size] * size]
    center = sum(everybody) / len(everybody)
    spread = (sum((one - center) ** 2 for one in everybody) / len(everybody)) ** 0.5
    close(normalize(layer, data), (data - center) / spread, atol=1e-4)
    say(size=size)


check()
state = ObjectState(step=0)
state.commit()
if hvd.rank() == 0:
    sys.stdout.flush()
    os._exit(3)
while True:
    try:
        state.commit()
        time.sleep(0.05)
    except HostsUpdatedInterrupt:
        break
check()
