"""What DistributedOptimizer makes of an optimizer."""

import copy

import gradring.keras as hvd
import keras
import numpy as np
from expect import close
from keras_models import EACH, MINE, Calls, backend, fit, model_of, rank


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """Which nobody can find by its name, and nor the optimizer."""

    def __call__(self, step):
        return 0.25

    def get_config(self):
        return {}


class Own(keras.optimizers.SGD):
    pass


def steps_of(optimizer, gradient, *names):
    """From 1, by a gradient which differs from rank to rank, of variables of these names."""
    variables = [keras.Variable(np.ones(2), dtype="float32", name=name) for name in names]
    optimizer.apply([keras.ops.convert_to_tensor(np.float32(gradient)) for _ in names], variables)
    return [1 - keras.ops.convert_to_numpy(one) for one in variables]


def an_optimizer_is_taken_over_whole():
    """Its schedule, its class, what decays, and what it is in."""
    gradient = np.ones(2) * 2 * rank  # 1 on average
    scaled = [] if backend == "jax" else [(keras.optimizers.LossScaleOptimizer(Own(Schedule()), initial_scale=4.0), 4)]
    for made, factor in ((Own(Schedule()), 1), (Own(lambda: 0.25), 1), *scaled):  # JAX has no apply() of scalers
        for optimizer in (hvd.DistributedOptimizer(made), copy.deepcopy(hvd.DistributedOptimizer(made))):
            close(steps_of(optimizer, factor * gradient, "one"), [[0.25, 0.25]])
    decaying = keras.optimizers.SGD(0.25, weight_decay=1.0)
    decaying.exclude_from_weight_decay(var_names=["bias"])
    close(steps_of(hvd.DistributedOptimizer(decaying), 0 * gradient, "bias", "kernel"), [[0, 0], [0.25, 0.25]])
    variable = keras.Variable(np.zeros(2), dtype="float32")
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), scale_local_gradients=False)
    optimizer.register_local_var(variable)
    copy.deepcopy(optimizer).apply([keras.ops.convert_to_tensor(np.float32(gradient))], [variable])
    close(keras.ops.convert_to_numpy(variable), -gradient)


def passes_of_a_rank_alone():
    if backend == "jax":  # has none
        return
    variable = keras.Variable(np.zeros(2), dtype="float32")
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), backward_passes_per_step=2)
    for gradient in ([1, 2], [3, 4]):
        optimizer.apply([keras.ops.convert_to_tensor(np.float32(gradient))], [variable])
    close(keras.ops.convert_to_numpy(variable), [-4, -6])


def steps_count_the_ranks_that_there_are():
    """When they run: a rank of an elastic job may have been alone when they were compiled."""
    model = model_of()
    bias = model.layers[1].bias
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1e-5))  # so that all steps are of about the same gradients
    optimizer.register_local_var(bias)
    batch = [one[:EACH] for one in MINE]
    kind = type(hvd.global_process_set)
    ranks = kind.ranks
    kind.ranks = property(lambda _: [rank])
    try:
        with Calls() as calls:
            fit(model, optimizer, batch, EACH, epochs=5, compiled=True)
            passes_of_a_rank_alone()
            assert not calls.of
    finally:
        kind.ranks = ranks
    alone = keras.ops.convert_to_numpy(bias) / 5
    with Calls() as calls:
        model.fit(*batch, batch_size=EACH, shuffle=False, verbose=0)
        assert list(calls.of) == ["allreduce"], calls.of
    close(keras.ops.convert_to_numpy(bias) - 5 * alone, alone / hvd.size(), rtol=1e-2, atol=1e-8)
