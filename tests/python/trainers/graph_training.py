"""A script of TensorFlow 1."""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


class Keep(v1.train.SessionRunHook):
    """What variables are in the end."""

    def __init__(self, variables):
        super().__init__()
        self.variables = variables

    def end(self, session):
        self.values = session.run(self.variables)


def batches(passes):
    """Each of them so many times."""
    generator = np.random.default_rng(21)
    while True:
        data = [generator.standard_normal((8, columns)).astype(np.float32) for columns in (4, 2)]
        for _ in range(passes):
            yield data


def train(optimizer_of, steps, passes=1, share=slice(None), hooks=(), folder=None, seed=11):
    """What the optimizer makes of the weights, in so many steps of so many passes each, from a share of each batch."""
    with tf.Graph().as_default():
        v1.set_random_seed(seed)
        numbers, wanted = v1.placeholder(tf.float32, [None, 4]), v1.placeholder(tf.float32, [None, 2])
        weights = v1.get_variable("weights", [4, 2], initializer=v1.random_normal_initializer())
        rows = v1.get_variable("table", [5, 2], initializer=v1.zeros_initializer())
        off = numbers @ weights + tf.gather(rows, tf.cast(numbers[:, 0] > 0, tf.int32)) - wanted
        loss = tf.reduce_mean(tf.square(off))
        global_step = v1.train.get_or_create_global_step()
        train_op = optimizer_of(v1.train.MomentumOptimizer(0.1, 0.9)).minimize(loss, global_step=global_step)
        kept = Keep([weights, rows])
        hooks = [one() for one in hooks] + [v1.train.StopAtStepHook(last_step=steps * passes), kept]
        with v1.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
            given = batches(passes)
            while not session.should_stop():
                data, labels = next(given)
                session.run(train_op, {numbers: data[share], wanted: labels[share]})
        return np.concatenate([one.ravel() for one in kept.values])
