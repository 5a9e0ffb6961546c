"""gradring.keras: models that ranks train together are those that one process trains with all of the data. Says "ok"
for each check. Once more with another backend of Keras where KERAS_BACKEND says so."""

import sys
from pathlib import Path

from keras_models import ALL, EACH, MINE, STEPS, Calls, backend, fit, model_of, rank, same_everywhere, sgd, size, tensorflow, weights
import gradring.keras as hvd  # after the models, which say what TensorFlow reads as it is imported
import keras
import numpy as np
from expect import close, refused
from keras_optimizers import an_optimizer_is_taken_over_whole, steps_count_the_ranks_that_there_are
from report import say


def values():
    close(hvd.allreduce([1.0 * rank, 2.0]), [(size - 1) / 2, 2.0])
    close(hvd.allreduce(np.float32(rank), average=False), size * (size - 1) / 2)
    close(hvd.allreduce(rank + 1.0, op=hvd.Product, name="product"), np.prod(np.arange(size) + 1))
    close(hvd.allreduce(np.float32([rank]), compression=hvd.Compression.fp16), [(size - 1) / 2])
    close(hvd.allgather(np.full(rank, rank)), np.repeat(np.arange(size), np.arange(size)))
    close(hvd.broadcast(np.float32(rank), 1), 1)
    close(hvd.reducescatter(np.arange(2.0 * size), op=hvd.Sum), np.arange(2 * rank, 2 * rank + 2) * size)
    refused(RuntimeError, "broadcast_variables", hvd.broadcast_global_variables, 0)


def fits_as_one_process_would():
    for made, options, compiled in ((sgd, {}, True), (lambda: keras.optimizers.Adam(0.01), {}, False),
                                    (sgd, {"groups": 2}, False), (sgd, {"gradient_predivide_factor": 2.0}, True)):
        alone, together = model_of(), model_of()
        fit(alone, made(), ALL, EACH * size)
        optimizer = hvd.DistributedOptimizer(made(), **options)
        assert isinstance(optimizer, type(made())) and type(optimizer).__name__ == type(made()).__name__
        fit(together, optimizer, MINE, EACH, compiled=compiled)
        close(weights(together), weights(alone), rtol=1e-4, atol=2e-6)
        same_everywhere(together)
    halved = model_of()
    fit(halved, hvd.DistributedOptimizer(sgd(), compression=hvd.Compression.fp16), MINE, EACH)
    close(weights(halved), weights(fit_alone()), atol=1e-2)
    summed = model_of()
    fit(summed, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 / size, momentum=0.9), op=hvd.Sum), MINE, EACH)
    close(weights(summed), weights(fit_alone()), rtol=1e-4, atol=2e-6)


def gradients_in_groups():
    """Of four variables: how many are handed over together."""
    for groups, wanted in ((None, [4]), (1, [4]), (2, [2, 2]), (3, [2, 1, 1]), (9, [1, 1, 1, 1]),
                           (lambda variables: [[variables[0], variables[3]]], [2, 1, 1]), (lambda variables: [variables[1:]], [1, 3])):
        model = model_of()
        known = groups(model.trainable_variables) if callable(groups) else groups
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), groups=known)
        with Calls() as calls:
            fit(model, optimizer, [one[:EACH] for one in MINE], EACH, epochs=1)
            keras.ops.convert_to_numpy(model.trainable_variables[0])
        assert calls.of == {"allreduce": wanted}, (groups, calls.of)
        same_everywhere(model)
    for wrong in (0, -1, [1, 2]):
        refused(ValueError, "a list of lists", hvd.DistributedOptimizer, sgd(), groups=wrong)


def fit_alone():
    alone = model_of()
    fit(alone, sgd(), ALL, EACH * size)
    return alone


def passes_are_added_up():
    """Each rank's batch in two halves, of which the second exchanges."""
    for average in (True, False):
        alone, together = model_of(), model_of()
        fit(alone, keras.optimizers.SGD(0.1 if average else 0.2, momentum=0.9), ALL, EACH * size)
        optimizer = hvd.DistributedOptimizer(sgd(), backward_passes_per_step=2, average_aggregated_gradients=average)
        fit(together, optimizer, MINE, EACH // 2, compiled=average)
        close(weights(together), weights(alone), rtol=1e-4, atol=2e-6)
        same_everywhere(together)
        assert int(optimizer.iterations) == 2 * 2 * STEPS


def overflow_of_one_rank():
    """Keras puts a scaler around the optimizer, which looks whether gradients are finite: those of rank 1 are not."""
    outside = keras.optimizers.LossScaleOptimizer(sgd(), initial_scale=1024.0)
    for optimizer in (hvd.DistributedOptimizer(sgd()), hvd.DistributedOptimizer(outside)):
        model = model_of(dtype="mixed_float16")
        model.dtype_policy = keras.DTypePolicy("mixed_float16")
        data, wanted = (one.copy() for one in MINE)
        model.compile(optimizer=optimizer, loss="mse", jit_compile=False)
        scaler = model.optimizer
        assert isinstance(scaler, keras.optimizers.LossScaleOptimizer)
        model.train_on_batch(data[:EACH], wanted[:EACH])
        before, scale = weights(model), float(scaler.dynamic_scale)
        if rank == 1:
            wanted[:] = np.inf
        model.train_on_batch(data[:EACH], wanted[:EACH])
        assert (weights(model) == before).all(), "a step that is not finite was taken"
        assert float(scaler.dynamic_scale) == scale / 2
        model.train_on_batch(*(one[:EACH] for one in MINE))
        assert np.isfinite(weights(model)).all() and (weights(model) != before).any()
        same_everywhere(model)


def local_layers():
    model = model_of()
    optimizer = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1), local_layers=model.layers[0])
    alone, each = model_of(), model_of()
    fit(model, optimizer, MINE, EACH * STEPS, epochs=1)
    fit(alone, keras.optimizers.SGD(0.1), ALL, EACH * STEPS * size, epochs=1)
    fit(each, keras.optimizers.SGD(0.1 / size), MINE, EACH * STEPS, epochs=1)
    for got, wanted in zip(model.layers[0].get_weights(), each.layers[0].get_weights(), strict=True):
        close(got, wanted)
    for got, wanted in zip(model.layers[1].get_weights(), alone.layers[1].get_weights(), strict=True):
        close(got, wanted, atol=1e-5)
    refused(ValueError, "layers of Keras", hvd.PartialDistributedOptimizer, sgd(), local_layers=[1])
    value = keras.ops.convert_to_tensor([1.0])  # as torch's parameters: not what Keras knows its variables by
    refused(ValueError, "it takes variables", model.optimizer.register_local_var, value)
    refused(ValueError, "it takes variables", hvd.callbacks.BroadcastGlobalVariablesCallback(0).register_local_var, value)


def saved_and_loaded():
    model = model_of()
    fit(model, hvd.DistributedOptimizer(sgd()), MINE, EACH)
    path = Path(sys.argv[1]).parent / f"model-{keras.backend.backend()}-{rank}.keras"
    path.parent.mkdir(parents=True, exist_ok=True)
    model.save(path)
    plain, loaded = keras.models.load_model(path), hvd.load_model(path)
    assert type(plain.optimizer) is type(sgd())
    assert type(loaded.optimizer) is not type(sgd()) and isinstance(loaded.optimizer, keras.optimizers.SGD)
    for one, other in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        assert (np.asarray(one) == np.asarray(other)).all(), (one, other)
    for one in (model, loaded):
        one.run_eagerly = tensorflow
        one.fit(*MINE, batch_size=EACH, shuffle=False, verbose=0)
    assert (weights(loaded) == weights(model)).all()
    same_everywhere(loaded)
    again = loaded.optimizer.from_config(loaded.optimizer.get_config())
    assert type(again) is type(loaded.optimizer)
    refused(ValueError, "distributed already", hvd.DistributedOptimizer, again)
    refused(TypeError, "an optimizer of Keras", hvd.DistributedOptimizer, "sgd")
    refused(ValueError, "Average and Sum", hvd.DistributedOptimizer, sgd(), op=hvd.Max)


def saved_with_passes():
    """As with the optimizer itself: what passes have added up is each rank's own."""
    path = Path(sys.argv[1]).parent / f"passes-{rank}.keras"
    for wrap in (lambda one: one, keras.optimizers.LossScaleOptimizer):
        model = model_of()
        optimizer = hvd.DistributedOptimizer(sgd(), backward_passes_per_step=STEPS)
        fit(model, wrap(optimizer), MINE, EACH)
        model.save(path)
        velocity = np.asarray(optimizer.momentums[0])
        assert np.abs(velocity).max() > 0
        for loaded in (keras.models.load_model(path), hvd.load_model(path)):
            again = getattr(loaded.optimizer, "inner_optimizer", loaded.optimizer)
            close(again.momentums[0], velocity, rtol=0, atol=0)
            assert int(again.iterations) == 2 * STEPS
        state = hvd.elastic.KerasState(model)
        count, *sums = optimizer.variables_of_passes()
        assert len(sums) == len(model.trainable_variables)
        count.assign_add(1)
        state.restore()  # so that all ranks exchange in the same pass again
        assert int(count) == 2 * STEPS


class Rates(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_begin(self, batch, logs=None):
        self.seen.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))


def callbacks():
    """Ranks that start apart end alike, at the rates that one process would have."""
    rates = Rates()
    together = model_of(seed=10 + rank)
    kept = together.layers[0].bias
    kept.assign(np.full(16, rank, np.float32))
    kept.trainable = False
    warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.1 * size, warmup_epochs=2, verbose=1)
    later = hvd.callbacks.LearningRateScheduleCallback(initial_lr=0.1 * size, multiplier=0.1, start_epoch=2)
    history = fit(together, hvd.DistributedOptimizer(sgd()), MINE, EACH, epochs=4, compiled=True, callbacks=[
        hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[kept]),
        hvd.callbacks.MetricAverageCallback(), warmup, later, rates])
    close(kept, np.full(16, rank))
    close(history.history["lr"][-2:], [0.1 * size, 0.1 * size * 0.1])
    wanted = [0.1 * ((step + 1) / STEPS * (size - 1) / 2 + 1) for step in range(2 * STEPS)]
    close(rates.seen[:2 * STEPS], wanted)
    close(rates.seen[2 * STEPS:], [0.1 * size] * STEPS + [0.01 * size] * STEPS)
    if backend != "torch":
        together.compile(hvd.DistributedOptimizer(sgd()), "mse", jit_compile=False, steps_per_execution=STEPS)
        warmup = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.1 * size, warmup_epochs=2)
        rates = together.fit(*MINE, batch_size=EACH, epochs=3, verbose=0, callbacks=[warmup]).history["lr"]
        close(rates, [0.1 * ((size - 1) / STEPS / 2 + 1), 0.1 * size, 0.1 * size])
    losses = np.asarray(hvd.allgather(np.array([history.history["loss"]])))
    assert (losses == losses[0]).all(), losses
    shared = [one for one in together.trainable_variables]
    for one in shared:
        close(hvd.broadcast(keras.ops.convert_to_numpy(one), 0), one, rtol=0, atol=0)
    logs = {"loss": 0.1 + rank, "of_classes": keras.ops.convert_to_tensor([1.0 * rank, 2.0]), "table": np.full((2, 1), rank)}
    hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    middle = (size - 1) / 2
    assert type(logs["loss"]) is float and np.isclose(logs["loss"], 0.1 + middle, rtol=1e-12), logs
    close(logs["of_classes"], [middle, 2.0])
    close(logs["table"], [[middle], [middle]])
    refused(ValueError, "initial_lr", hvd.callbacks.LearningRateWarmupCallback, None)


def ranks_drop_units_of_their_own():
    """Where ranks begin with seeds of their own they keep them, whatever else they take from the root."""
    keras.utils.set_random_seed(rank)
    dropout = keras.layers.Dropout(0.5, seed=1000 + rank)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16), dropout, keras.layers.Dense(2)])
    fit(model, hvd.DistributedOptimizer(sgd()), MINE, EACH, epochs=1,
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    same_everywhere(model)
    state = hvd.elastic.KerasState(model)
    state.sync()
    state.restore()
    seeds = keras.ops.convert_to_numpy(dropout.seed_generator.state)
    assert seeds[0] == 1000 + rank and seeds[1] > 0, seeds
    kept = np.asarray(dropout(np.ones((1, 1000), np.float32), training=True)) != 0
    everybody = np.asarray(hvd.allgather(kept.astype(np.uint8)))
    assert len(np.unique(everybody, axis=0)) == size


def a_state_is_kept_in_the_midst_of_an_epoch():
    """And what can be gone back to, of all that a step of JAX uses up where it fails."""
    dropout = keras.layers.Dropout(0.5)
    model = keras.Sequential([keras.Input((6,)), *model_of().layers, dropout])
    model.compile(hvd.DistributedOptimizer(sgd()), "mse", jit_compile=backend == "jax")
    state = hvd.elastic.KerasState(model)

    class Keep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                state.save()
                self.weights = weights(self.model)
                self.velocity = np.array(keras.ops.convert_to_numpy(self.model.optimizer.momentums[0]))
    keep = Keep()
    model.fit(*MINE, batch_size=EACH, verbose=0, callbacks=[keep])
    assert (weights(model) != keep.weights).any()
    state.restore()
    assert (weights(model) == keep.weights).all() and np.abs(keep.velocity).max() > 0
    close(keras.ops.convert_to_numpy(model.optimizer.momentums[0]), keep.velocity, rtol=0, atol=0)
    at = keras.ops.convert_to_numpy(dropout.seed_generator.state)
    with Calls(failing=True):
        refused(Exception, "in vain", model.fit, *MINE, batch_size=EACH, verbose=0)
    state.restore()
    assert (weights(model) == keep.weights).all()
    close(keras.ops.convert_to_numpy(dropout.seed_generator.state), at, rtol=0, atol=0)
    model.fit(*MINE, batch_size=EACH, verbose=0)


def momentum_is_corrected():
    """v = m v' - r g where v' = v r / r_before: what one step with m r / r_before makes."""
    def train(correction):
        model = model_of()
        schedule = hvd.callbacks.LearningRateScheduleCallback(0.1, lambda epoch: 0.5 ** epoch,
                                                              momentum_correction=correction)
        fit(model, sgd(), ALL, EACH * size * STEPS, epochs=3, callbacks=[schedule], compiled=correction)
        return weights(model)

    model = model_of()
    velocities = [np.zeros_like(one) for one in model.get_weights()]
    before = 0.1
    plain = keras.optimizers.SGD(1.0)  # takes gradients as they are
    model.compile(optimizer=plain, loss="mse", run_eagerly=tensorflow)
    for rate in (0.1, 0.05, 0.025):
        at = model.get_weights()
        model.train_on_batch(*ALL)
        gradients = [old - new for old, new in zip(at, model.get_weights(), strict=True)]
        velocities = [0.9 * rate / before * v - rate * g for v, g in zip(velocities, gradients, strict=True)]
        model.set_weights([old + v for old, v in zip(at, velocities, strict=True)])
        before = rate
    close(train(True), weights(model), rtol=1e-4, atol=1e-5)
    assert np.abs(train(False) - weights(model)).max() > 1e-4


def momentum_without_the_rate_is_left_alone():
    """Muon's is of gradients as they are: a schedule of ours is one of Keras."""
    def train(schedule):
        model = model_of()
        fit(model, keras.optimizers.Muon(0.05), ALL, EACH * size, epochs=3, callbacks=[schedule], compiled=True)
        return weights(model)
    ours = train(hvd.callbacks.LearningRateScheduleCallback(0.05, lambda epoch: 0.1 ** epoch))
    close(ours, train(keras.callbacks.LearningRateScheduler(lambda epoch: 0.05 * 0.1 ** epoch)), rtol=1e-5, atol=1e-6)


def the_best_is_kept():
    if rank != 0:
        return
    model = model_of()
    path = Path(sys.argv[1]).parent / f"best-{keras.backend.backend()}.keras"
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    best.filepath = str(path)
    fit(model, sgd(), ALL, EACH, callbacks=[best])
    assert path.exists()


def sparse_gradients():
    """Of an Embedding: rows from all ranks; made dense where passes are added up."""
    numbers = np.random.default_rng(4).integers(0, 50, (size * EACH, 3))
    wanted = np.random.default_rng(5).standard_normal((size * EACH, 3, 4)).astype(np.float32)
    share = slice(rank * EACH, rank * EACH + EACH)

    def trained(optimizer, part):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((3,), dtype="int32"), embedding()])
        fit(model, optimizer, (numbers[part], wanted[part]), len(numbers[part]), epochs=2)
        return weights(model)
    alone = trained(keras.optimizers.SGD(0.1), slice(None))
    for options, used in (({}, "allreduce" if backend == "jax" else "allgather"), ({"op": hvd.Sum}, None),
                          ({"sparse_as_dense": True}, "allreduce"),
                          ({"sparse_as_dense": True, "gradient_predivide_factor": 2.0}, "allreduce")):
        with Calls() as calls:
            rate = 0.1 / size if "op" in options else 0.1
            close(trained(hvd.DistributedOptimizer(keras.optimizers.SGD(rate), **options), share), alone)
        assert used is None or set(calls.of) == {used}, (options, calls.of)
    if backend == "jax":
        refuse_sparse_of_jax()
        return
    refused(ValueError, "sparse_as_dense", trained,
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2), share)
    refused(NotImplementedError, "sparse_as_dense", trained,
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), gradient_predivide_factor=2.0), share)
    both_passes = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2, sparse_as_dense=True,
                                           average_aggregated_gradients=True)
    once = trained(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), share)
    assert np.abs(trained(both_passes, share) - once).max() > 1e-4  # its second epoch alone takes a step


def embedding():
    if backend != "torch":
        return keras.layers.Embedding(50, 4)
    import torch

    torch.manual_seed(3)
    return keras.layers.TorchModuleWrapper(torch.nn.Embedding(50, 4, sparse=True))


def refuse_sparse_of_jax():
    """Keras makes none, but whoever calls apply() may."""
    from jax.experimental.sparse import BCOO

    gradient = BCOO((np.full((1, 2), rank, np.float32), np.array([[rank]])), shape=(size, 2))
    variable = keras.Variable(np.zeros((size, 2), np.float32))
    hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), sparse_as_dense=True).apply([gradient], [variable])
    close(variable, -np.arange(size)[:, None].repeat(2, 1) / size)
    refused(NotImplementedError, "sparse_as_dense", hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)).apply, [gradient],
            [variable])


def by_the_other_name():
    import gradring.tensorflow as other

    assert other.keras.DistributedOptimizer is hvd.DistributedOptimizer
    assert other.keras.callbacks.MetricAverageCallback is hvd.callbacks.MetricAverageCallback
    optimizer = other.DistributedOptimizer(sgd(), backward_passes_per_step=1)
    model = model_of()
    fit(model, optimizer, MINE, EACH)
    close(weights(model), weights(fit_alone()), rtol=1e-4, atol=2e-6)
    by_hand = model_of()
    from tensorflow import GradientTape

    with other.PartialDistributedGradientTape(GradientTape(), local_layers=by_hand.layers[0]) as tape:
        loss = keras.ops.mean((by_hand(MINE[0]) - MINE[1]) ** 2)
    local, shared = tape.get_local_and_global_gradients(loss, by_hand.trainable_variables)
    assert [one.path for one, _ in local] == [one.path for one in by_hand.layers[0].trainable_variables]
    for _, one in shared:
        close(hvd.broadcast(one, 0), one, rtol=0, atol=0)


CHECKS = [values, fits_as_one_process_would, gradients_in_groups, passes_are_added_up, overflow_of_one_rank, local_layers,
          saved_and_loaded, saved_with_passes, callbacks, ranks_drop_units_of_their_own,
          an_optimizer_is_taken_over_whole, steps_count_the_ranks_that_there_are,
          a_state_is_kept_in_the_midst_of_an_epoch, momentum_is_corrected,
          momentum_without_the_rate_is_left_alone, the_best_is_kept, sparse_gradients, by_the_other_name]
OF_TENSORFLOW = [by_the_other_name]
NOT_OF_JAX = [passes_are_added_up, saved_with_passes]
for check in CHECKS:
    if (check in OF_TENSORFLOW and not tensorflow) or (check in NOT_OF_JAX and keras.backend.backend() == "jax"):
        continue
    if len(sys.argv) < 3 or check.__name__ in sys.argv[2:]:
        check()
        say(ok=check.__name__)
hvd.shutdown()
