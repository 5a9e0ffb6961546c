"""gradring.tensorflow, against what NumPy and one process compute. Says "ok" for each check."""

import gc
import hashlib
import os
import sys
from pathlib import Path

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")

import tensorflow as tf  # noqa: E402  (after what it reads as it is imported; and first, as in most scripts)
import gradring.tensorflow as hvd  # noqa: E402
import graph_training  # noqa: E402
import numpy as np  # noqa: E402
from expect import close, refused  # noqa: E402
from report import say  # noqa: E402

v1 = tf.compat.v1
tf.get_logger().setLevel("ERROR")
hvd.init()
rank, size = hvd.rank(), hvd.size()
inputs = [np.random.default_rng(one).standard_normal((6, 5)).astype(np.float32) for one in range(size)]  # of all ranks
total = sum(inputs)


def run(check):
    if len(sys.argv) < 3 or check.__name__ in sys.argv[2:]:
        check()
        say(ok=check.__name__)


def many_at_once_in_a_graph_of_tensorflow_1():
    """In an order that differs from rank to rank, with more ops than TensorFlow has threads otherwise."""
    with tf.Graph().as_default():
        sums = [hvd.allreduce(tf.constant(inputs[rank]) * i, op=hvd.Sum) for i in range(30)]
        with v1.Session() as session:
            for _ in range(3):
                got = session.run(sums[::-1] if rank % 2 else sums)
                for i, one in enumerate(got[::-1] if rank % 2 else got):
                    close(one, i * total, atol=1e-3)


# Before anything is eager: it is then that TensorFlow looks how many threads it is to have.
run(many_at_once_in_a_graph_of_tensorflow_1)
mine = tf.constant(inputs[rank])


def both(function, *args):
    """Eagerly and in a graph, which must not differ."""
    eager, graph = function(*args), tf.function(function)(*args)
    tf.nest.map_structure(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), eager, graph)
    return eager


def places():
    assert both(lambda: [hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()]) == [
        rank, size, hvd.local_rank(), hvd.local_size()]
    assert [int(both(hvd.process_set_included_op, one)) for one in (0, 99)] == [1, -2]


def sums():
    close(both(lambda x: hvd.allreduce(x), mine), total / size)
    close(both(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), mine), 2 * total)
    close(both(lambda x: hvd.allreduce(x, average=False, name="by name"), mine), total)
    close(both(lambda x: hvd.allreduce(x, average=False, name=7), mine), total)
    for op, function in ((hvd.Min, np.min), (hvd.Max, np.max), (hvd.Product, np.prod)):
        close(both(lambda x, op=op: hvd.allreduce(x, op=op), mine), function(inputs, axis=0))
    for dtype in (tf.float64, tf.float16, tf.bfloat16, tf.int8, tf.int32, tf.int64, tf.uint8):
        got = both(lambda x: hvd.allreduce(x, op=hvd.Sum), tf.cast(tf.constant([1, 2, 3]), dtype))
        assert got.dtype == dtype
        close(tf.cast(got, tf.float64), np.array([1, 2, 3]) * size)
        got = hvd.allreduce(tf.cast(tf.constant(2), dtype), op=hvd.Sum)
        assert got.shape == () and tf.cast(got, tf.float64) == 2 * size
    close(hvd.allreduce(tf.Variable(mine), compression=hvd.Compression.fp16), total / size, rtol=1e-2, atol=1e-2)
    got = both(lambda x: hvd.grouped_allreduce([x, tf.constant([rank])], op=hvd.Sum), mine)
    close(got[0], total)
    close(got[1], [size * (size - 1) / 2])
    refused(ValueError, "not both", hvd.allreduce, mine, average=True, op=hvd.Sum)


def many_at_once_in_a_graph():
    @tf.function
    def all_of_them(x):
        return [hvd.allreduce(x + i, op=hvd.Sum) for i in range(20)]
    for i, one in enumerate(all_of_them(mine)):
        close(one, total + size * i, atol=1e-4)


def big_results_are_aligned():
    """Kernels of TensorFlow abort where they are not."""
    for n in range(8):
        rows = tf.ones((20000 + n, 3))
        for got in (hvd.allgather(rows), hvd.allreduce(rows, op=hvd.Sum), hvd.broadcast(rows, 0)):
            assert tf.reduce_max(tf.slice(got, [0, 0], [20000, 3]) * 2.0 - 1.0).numpy() in (1.0, 2 * size - 1)


def ranks_that_trace_more_often():
    @tf.function
    def traced(x):
        return hvd.allreduce(x, op=hvd.Sum)
    for rows in range(1, 2 + rank):  # what happens where the last batch of one rank alone is smaller
        traced.get_concrete_function(tf.TensorSpec([rows], tf.float32))
    close(traced(tf.ones(9)), np.full(9, size))


def sparse():
    def slices(values):
        return tf.IndexedSlices(values, tf.range(6) + rank, dense_shape=[20, 5])
    wanted = np.zeros((20, 5))
    for one in range(size):
        wanted[one:one + 6] += inputs[one]
    got = both(lambda x: tf.convert_to_tensor(hvd.allreduce(slices(x))), mine)
    close(got, wanted / size)
    dense, other = hvd.grouped_allreduce([mine, slices(mine)], op=hvd.Sum)
    close(dense, total)
    close(tf.convert_to_tensor(other), wanted)
    refused(NotImplementedError, "Sum and Average", hvd.allreduce, slices(mine), op=hvd.Min)
    refused(NotImplementedError, "prescale_factor", hvd.allreduce, slices(mine), prescale_factor=2.0)


def rows():
    whole = np.concatenate([one[:i + 1] for i, one in enumerate(inputs)])
    close(both(lambda x: hvd.allgather(x[:rank + 1]), mine), whole)
    got = both(lambda x: hvd.grouped_allgather([x[:rank + 1], tf.constant([[rank]])]), mine)
    close(got[0], whole)
    close(got[1][:, 0], range(size))
    numbers = np.repeat(np.arange(size), np.arange(size) + 1)
    got, received = both(lambda x: hvd.alltoall(x, splits=tf.range(size) + 1), tf.constant(numbers))
    assert received.dtype == tf.int32
    close(got, np.full(size * (rank + 1), rank))
    close(received, np.full(size, rank + 1))
    close(both(lambda x: hvd.alltoall(x), tf.range(size)), np.full(size, rank))
    shares = np.array_split(total, size)
    close(both(lambda x: hvd.reducescatter(x), mine), shares[rank] / size)
    got = both(lambda x: hvd.grouped_reducescatter([x, tf.ones((size, 2))], op=hvd.Sum), mine)
    close(got[0], shares[rank])
    close(got[1], np.full((1, 2), size))
    refused(ValueError, "scalar", hvd.allgather, tf.constant(1.0))
    for function in (hvd.allgather, tf.function(hvd.allgather)):
        refused(TypeError, "cannot move string", function, tf.constant(["a"]))
    refused(TypeError, "cannot move string", tf.function(lambda: hvd.broadcast(tf.constant("a"), 0)))


def broadcasts():
    close(both(lambda x: hvd.broadcast(x, 1), mine), inputs[1])
    close(tf.cast(both(lambda x: hvd.broadcast(x, 1), tf.cast([float(rank)], "float8_e5m2")), tf.float32), [1])
    variables = [tf.Variable(mine), tf.Variable(rank)]
    for value in hvd.broadcast_(variables, 2):
        assert value is not None
    close(variables[0], inputs[2])
    assert variables[1].numpy() == 2
    variables[0].assign(mine)

    @tf.function
    def in_a_graph():
        hvd.broadcast_variables(variables, 3)
    in_a_graph()
    close(variables[0], inputs[3])
    assert hvd.broadcast_object({"from": rank}, 3) == {"from": 3}
    assert hvd.broadcast_object_fn(1)(rank) == 1
    assert hvd.allgather_object("x" * rank) == ["x" * one for one in range(size)]
    refused(RuntimeError, "broadcast_variables", hvd.broadcast_global_variables, 0)


def gradients():
    """Of each op: what the ranks' weights, which differ, make of it."""
    weights = [np.random.default_rng(100 + one).standard_normal((6, 5)).astype(np.float32) for one in range(size)]

    def gradient(function, rows=6):
        def of(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
                heights = tf.range(1.0, 1.0 + tf.cast(tf.shape(y)[0], tf.float32))[:, None]
                loss = tf.reduce_sum(y * weights[rank][:1, :] * heights)
            return tape.gradient(loss, x)
        return both(of, mine[:rows])

    def upstream(one, count):
        return weights[one][:1] * np.arange(1, 1 + count)[:, None]
    sent = sum(upstream(one, 6) for one in range(size))
    close(gradient(lambda x: hvd.allreduce(x)), sent / size)
    close(gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0)), 2 * sent, atol=1e-4)
    close(gradient(lambda x: hvd.grouped_allreduce([x, x])[0]), sent / size)
    close(gradient(lambda x: hvd.broadcast(x, 1)), sent / size if rank == 1 else np.zeros((6, 5)))
    count = size * (size + 1) // 2
    gathered = sum(upstream(one, count) for one in range(size)) / size
    begin = rank * (rank + 1) // 2
    close(gradient(lambda x: hvd.allgather(x), rows=rank + 1), gathered[begin:begin + rank + 1], atol=1e-5)
    close(gradient(lambda x: hvd.alltoall(x, splits=tf.constant([2, 2, 1, 1]))[0]),
          np.concatenate([upstream(one, 8)[[2, 2, 1, 1][one] * rank:][:[2, 2, 1, 1][one]] for one in range(size)]))
    scattered = np.concatenate([upstream(one, [2, 2, 1, 1][one]) for one in range(size)])
    close(gradient(lambda x: hvd.reducescatter(x)), scattered)
    close(gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum, postscale_factor=0.5)), scattered * size / 2)
    with tf.GradientTape() as outer:
        x = tf.Variable(float(rank + 1))
        with tf.GradientTape() as inner:
            y = hvd.allreduce(x, op=hvd.Sum) ** 2
        slope = inner.gradient(y, x)
    close(outer.gradient(slope, x), 2 * size * size)  # the gradient of a gradient
    refused(NotImplementedError, "no gradient", gradient, lambda x: hvd.allreduce(x, op=hvd.Max))


def a_graph_leaves_no_exchange_out():
    """Where what comes of it is known beforehand on some ranks, for whose exchange the others wait nevertheless."""
    with tf.Graph().as_default():
        x = tf.constant(inputs[rank])
        slope, = tf.gradients(tf.reduce_sum(hvd.broadcast(x, 1) * 2.0), x)
        with v1.Session() as session:
            close(session.run(slope), np.full((6, 5), 2.0 * (rank == 1)))


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        generator = np.random.default_rng(3)
        self.table = tf.Variable(generator.standard_normal((8, 5)).astype(np.float32))
        self.layers = [tf.Variable(generator.standard_normal(shape).astype(np.float32) / shape[0] ** 0.5)
                       for shape in ((5, 300), (300, 200), (200, 3))]

    def loss(self, numbers, wanted):
        data = tf.gather(self.table, numbers)
        for layer in self.layers[:-1]:
            data = tf.tanh(data @ layer)
        return tf.reduce_mean(tf.square(data @ self.layers[-1] - wanted))


def batches(steps=4, each=6):
    generator = np.random.default_rng(9)
    for _ in range(steps):
        yield generator.integers(0, 8, each * size), generator.standard_normal((each * size, 3)).astype(np.float32)


def train(share=slice(None), wrap=lambda tape: tape, function=lambda step: step):
    model = Model()

    @function
    def step(numbers, wanted):
        with tf.GradientTape() as tape:
            loss = model.loss(numbers, wanted)
        variables = list(model.trainable_variables)
        for variable, gradient in zip(variables, wrap(tape).gradient(loss, variables)):
            variable.assign_sub(0.05 * tf.convert_to_tensor(gradient))
    for numbers, wanted in batches():
        step(tf.constant(numbers[share]), tf.constant(wanted[share]))
    return np.concatenate([one.numpy().ravel() for one in model.trainable_variables])


def tapes():
    alone = train()
    share = slice(rank * 6, rank * 6 + 6)
    for function in (tf.function, lambda step: step):
        for options in ({}, {"sparse_as_dense": True}, {"groups": 2}, {"sparse_as_dense": True,
                        "gradient_predivide_factor": 2.0}, {"num_groups": 3}):
            got = train(share, lambda tape, options=options: hvd.DistributedGradientTape(tape, **options), function)
            close(got, alone, atol=1e-6)
            digests = hvd.allgather_object(hashlib.sha256(got.tobytes()).hexdigest())
            assert len(set(digests)) == 1, digests
    halved = train(share, lambda tape: hvd.DistributedGradientTape(tape, compression=hvd.Compression.bf16,
                                                                   sparse_as_dense=True))
    close(halved, alone, atol=2e-2)
    with hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum) as tape:
        variable, kept, other = tf.Variable(1.0), tf.Variable(1.0), tf.Variable(1.0)
        tape.register_local_source(kept)
        loss = (rank + 1.0) * (variable + kept)
    got = tape.gradient(loss, {"a": variable, "b": kept, "c": other})
    assert [got["a"].numpy(), got["b"].numpy(), got["c"]] == [size * (size + 1) / 2, (rank + 1) / size, None]
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = variable ** 2
    got = tape.gradient(loss, [variable, other], None, tf.UnconnectedGradients.ZERO)
    assert [one.numpy() for one in got] == [2, 0]
    refused(ValueError, "distributed already", hvd.DistributedGradientTape, tape)
    refused(ValueError, "for Average alone", hvd.DistributedGradientTape, tf.GradientTape(), op=hvd.Sum,
            gradient_predivide_factor=2.0)
    refused(ValueError, "groups=-1", hvd.DistributedGradientTape, tf.GradientTape(), groups=-1)


def slopes_of_slopes():
    """A penalty on what all ranks' gradients are together: it is that of each rank's own."""
    x = tf.Variable([rank + 1.0, 2.0])

    def slope(indexed=False, **options):
        with tf.GradientTape() as outer:
            with hvd.DistributedGradientTape(tf.GradientTape(), **options) as tape:
                loss = tf.reduce_sum((tf.gather(x, [0, 1]) if indexed else x) ** 3)
            penalty = tf.reduce_sum(tf.convert_to_tensor(tape.gradient(loss, x)) ** 2)
        return tf.convert_to_tensor(outer.gradient(penalty, x))
    mean = [3 * np.mean((np.arange(size) + 1.0) ** 2), 12.0]
    for function in (slope, tf.function(slope)):
        close(function(), 2 * np.multiply(mean, 6 * x.numpy()))
        close(function(op=hvd.Sum, groups=1), 2 * size ** 2 * np.multiply(mean, 6 * x.numpy()))
        refused(NotImplementedError, "sparse_as_dense", function, indexed=True)
        close(function(indexed=True, sparse_as_dense=True), 2 * np.multiply(mean, 6 * x.numpy()))
        refused(NotImplementedError, "Average and Sum", function, op=hvd.Max)


def process_sets():
    even, odd = (hvd.add_process_set(range(first, size, 2)) for first in (0, 1))
    own = even if rank % 2 == 0 else odd
    ranks = own.ranks
    close(both(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=own), mine), sum(inputs[one] for one in ranks))
    close(both(lambda x: hvd.broadcast(x, ranks[1], process_set=own), mine), inputs[ranks[1]])
    assert [int(hvd.process_set_included_op(one.process_set_id)) for one in (even, odd)] == [rank % 2 == 0, rank % 2]
    assert int(hvd.size_op(even.process_set_id)) == 2
    variable = tf.Variable(mine)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * variable)
    got = hvd.DistributedGradientTape(tape, process_set=even).gradient(loss, variable)
    close(got, 2 * (sum(inputs[one] for one in even.ranks) / 2 if rank % 2 == 0 else inputs[rank]))


def batch_normalization():
    def normalized(layer, data, weights):
        with tf.GradientTape() as tape:
            tape.watch(data)
            y = layer(data, training=True)
            loss = tf.reduce_sum(y * weights)
        return y, tape.gradient(loss, data)
    import keras

    rows_of = [0, *range(3, 2 + size)]  # of each rank
    data = np.random.default_rng(5).standard_normal((sum(rows_of), 3)).astype(np.float32)
    weights = np.random.default_rng(6).standard_normal(data.shape).astype(np.float32)
    share = slice(sum(rows_of[:rank]), sum(rows_of[:rank + 1]))
    for function in (lambda one: one, tf.function):
        layer = hvd.SyncBatchNormalization(epsilon=1e-3)
        wanted, slopes = normalized(keras.layers.BatchNormalization(epsilon=1e-3), tf.constant(data), weights)
        layer.build(data.shape)
        got, slope = function(lambda x: normalized(layer, x, weights[share]))(tf.constant(data[share]))
        close(got, wanted[share], atol=1e-5)
        close(slope, slopes[share], atol=1e-4)
    far = 1000 + data / 100  # of whose squares little would be left
    got = hvd.SyncBatchNormalization()(far[share], training=True)
    close(got, keras.layers.BatchNormalization()(far, training=True)[share], atol=1e-2)
    assert hvd.SyncBatchNormalization().name != hvd.SyncBatchNormalization().name
    refused(ValueError, "fused", hvd.SyncBatchNormalization, fused=True)


def tensorflow_1():
    alone = graph_training.train(lambda one: one, 5)
    store = Path(sys.argv[1]).parent / "checkpoints" if rank == 0 else None
    mine = {"share": slice(rank * 2, rank * 2 + 2), "hooks": [lambda: hvd.BroadcastGlobalVariablesHook(0)],
            "seed": 11 + rank}  # apart, until the broadcast makes them alike
    got = graph_training.train(lambda one: hvd.DistributedOptimizer(one), 5, folder=store and str(store), **mine)
    close(got, alone)
    if rank == 0:
        assert any(store.glob("model.ckpt-5*")), list(store.iterdir())
    got = graph_training.train(lambda one: hvd.DistributedOptimizer(
        one, sparse_as_dense=True, backward_passes_per_step=3, average_aggregated_gradients=True), 5, 3, **mine)
    close(got, alone)
    got = graph_training.train(lambda one: hvd.DistributedOptimizer(
        one, op=hvd.Adasum, sparse_as_dense=True), 3, **mine)
    digests = hvd.allgather_object(hashlib.sha256(got.tobytes()).hexdigest())
    assert len(set(digests)) == 1 and np.isfinite(got).all(), (digests, got)
    refused(ValueError, "is for graphs", hvd.DistributedOptimizer, v1.train.GradientDescentOptimizer(0.1),
            backward_passes_per_step=2)
    refused(ValueError, "distributed already", hvd.DistributedOptimizer,
            hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1)))


def errors_name_whom_to_blame():
    refused(hvd.GradringError, "rank", hvd.allreduce, tf.zeros(3 + rank % 2), name="of other shapes")
    refused(tf.errors.OpError, "rank",
            tf.function(lambda: hvd.allreduce(tf.zeros(3 + rank % 2), name="of other shapes in a graph")))


def tensors_outlive_what_made_them():
    big = tf.ones(1 << 18) * (rank + 1)
    for function in (lambda x: x, tf.function):
        variable = tf.Variable(big)

        @function
        def slopes(variable=variable):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variable * variable)
            return hvd.DistributedGradientTape(tape).gradient(loss, variable)
        got = slopes()
        again = slopes()  # into other memory, though both are the daemon's
        gc.collect()
        close(got, np.full(1 << 18, size + 1.0))
        close(again, got)


def joins():
    for _ in range(rank + 1):
        hvd.allreduce(tf.ones(3), op=hvd.Sum, name="before joining")
    assert int(hvd.join()) == size - 1
    hvd.barrier()
    tf.function(lambda: hvd.barrier())()


CHECKS = [places, sums, many_at_once_in_a_graph, big_results_are_aligned, ranks_that_trace_more_often, sparse, rows,
          broadcasts, gradients, a_graph_leaves_no_exchange_out, tapes, slopes_of_slopes, process_sets,
          batch_normalization, tensorflow_1, errors_name_whom_to_blame, tensors_outlive_what_made_them, joins]
for one in CHECKS:
    run(one)
hvd.shutdown()
