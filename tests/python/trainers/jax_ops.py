"""Each op of gradring.jax, outside of jax.jit and inside, against what NumPy computes. Says "ok" for each."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import gradring.jax as gradring  # noqa: E402  (reads the lines above)
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from expect import close as equal, refused  # noqa: E402
from report import say  # noqa: E402

gradring.init()
rank, size = gradring.rank(), gradring.size()
inputs = [np.random.default_rng(one).standard_normal((6, 5)).astype(np.float32) for one in range(size)]
mine = jnp.asarray(inputs[rank])
mean, total = np.mean(inputs, axis=0), np.sum(inputs, axis=0)


def close(got, expected):
    assert isinstance(got, jax.Array), type(got)
    equal(got, expected)


def both(function, *args):
    """Of a call, and of a compiled one."""
    yield function(*args)
    yield jax.jit(function)(*args)


def refused_last(word, function, *args):
    """In a compiled function, by the last words of JAX's error."""
    try:
        function(*args)
    except jax.errors.JaxRuntimeError as told:
        last = str(told).strip().splitlines()[-1]
        assert "GradringError" in last and word in last, told
        return
    raise AssertionError(f"{word} was not refused")


def sums_and_averages():
    for got in both(gradring.allreduce, mine):
        close(got, mean)
    for op, expected in ((gradring.Sum, total), (gradring.Min, np.min(inputs, axis=0)),
                         (gradring.Max, np.max(inputs, axis=0)), (gradring.Product, np.prod(inputs, axis=0))):
        for got in both(lambda one, op=op: gradring.allreduce(one, op), mine):
            close(got, expected)
    for got in both(lambda one: gradring.allreduce(one, gradring.Sum, "named", 0.5, 3.0), mine):
        close(got, 1.5 * total)
    for got in both(lambda one: gradring.allreduce(one, gradring.Adasum), jnp.eye(size)[rank]):
        close(got, np.ones(size))


def types():
    for dtype in ("bfloat16", "float16", "int32", "uint8"):
        for got in both(lambda one: gradring.allreduce(one, gradring.Sum), jnp.full((2, 3), rank + 1, dtype)):
            assert got.dtype == dtype
            close(got, np.full((2, 3), sum(range(1, size + 1))))
    for got in both(gradring.allreduce, jnp.float32(rank)):
        assert got.shape == ()
        close(got, (size - 1) / 2)
    close(gradring.allreduce([1.0, float(rank)])[1], (size - 1) / 2)  # Python's numbers


def trees():
    tree = {"w": mine, "more": (jnp.arange(3) + rank, None, [jnp.float32(rank)]), "none": jnp.zeros((0, 3))}
    before = len(calls)
    for number, got in enumerate(both(lambda one: gradring.allreduce(one, gradring.Sum), tree), 1):
        assert jax.tree.structure(got) == jax.tree.structure(tree)
        close(got["w"], total)
        close(got["more"][0], size * np.arange(3) + sum(range(size)))
        close(got["more"][2][0], sum(range(size)))
        assert got["none"].shape == (0, 3)
        assert len(calls) == before + number, "a tree is one call"
    for got in both(lambda *some: gradring.grouped_allreduce(some), mine, mine * 2):
        close(got[1], 2 * mean)
    assert gradring.allreduce({}) == {}


def rows_put_together():
    for got in both(gradring.allgather, {"a": mine}):
        close(got["a"], np.concatenate(inputs))
    close(gradring.allgather(mine[:rank]), np.concatenate([one[:i] for i, one in enumerate(inputs)]))
    for rows in (rank + 1, 2 - rank % 2, 2 if rank < 2 else 1 + 2 * (rank % 2)):  # the last are as many as two of each rank
        refused_last("do not agree on the numbers of rows", jax.jit(gradring.allgather), mine[:rows])
    for call in (gradring.allgather, jax.jit(gradring.allgather)):
        refused(ValueError, "scalar", call, jnp.float32(1))


def broadcasts():
    for got in both(lambda tree: gradring.broadcast(tree, 1, "told"), [mine, jnp.int32(rank)]):
        assert np.array_equal(got[0], inputs[1]) and got[1] == 1
    got = gradring.broadcast_parameters({"w": mine, "step": jnp.int32(rank)}, root_rank=2)
    assert np.array_equal(got["w"], inputs[2]) and got["step"] == 2
    refused(ValueError, "no rank 99", jax.jit(lambda one: gradring.broadcast(one, 99)), mine)


def shares():
    for got in both(lambda one: gradring.reducescatter(one, gradring.Sum), mine):
        close(got, np.array_split(total, size)[rank])
    refused(NotImplementedError, "takes Average or Sum", lambda: gradring.reducescatter(mine, gradring.Max))


def each_to_each():
    for got in both(gradring.alltoall, jnp.arange(2 * size) + 100 * rank):
        close(got, [100 * one + 2 * rank + i for one in range(size) for i in range(2)])
    rows = jnp.repeat(jnp.arange(size), np.arange(size) + 1, total_repeat_length=size * (size + 1) // 2)
    got, received = gradring.alltoall(rows, list(range(1, size + 1)))
    assert (got == rank).all() and received.tolist() == [rank + 1] * size
    refused(ValueError, "inside jax.jit", jax.jit(lambda one: gradring.alltoall(one, list(range(1, size + 1)))), rows)


def order():
    """Of ops without names, in a compiled function and after it."""
    @jax.jit
    def several(one):
        gradring.barrier()
        a = gradring.allreduce(one)
        b = gradring.allreduce(one * 2)
        return jax.lax.fori_loop(0, 3, lambda i, c: gradring.allreduce(c + i, gradring.Sum), b), a
    for _ in range(5):
        looped, a = several(mine)
        after = gradring.allreduce(jnp.ones(7), gradring.Sum)
        close(after, np.full(7, size))
        close(a, mean)
        expected = 2 * mean
        for i in range(3):
            expected = size * (expected + i)
        close(looped / 100, expected / 100)
    gradring.barrier()


def gradients():
    """Sum over the ranks of (rank + 1) * (weight . reduced), by this rank's input."""
    for op, share in ((gradring.Sum, 1), (gradring.Average, 1 / size)):
        def loss(one, op=op):
            reduced = gradring.allreduce({"x": one, "n": jnp.arange(3)}, op, "forward", 2.0)
            return (rank + 1) * (reduced["x"] * inputs[0]).sum()
        for got in both(jax.grad(loss), mine):
            close(got, sum(range(1, size + 1)) * 2 * share * inputs[0])
    def slopes(one):  # of y ** 3, where y is everybody's average
        return jax.grad(lambda each: (gradring.allreduce(each, name="twice") ** 3).sum())(one)
    for got in both(jax.grad(lambda one: (slopes(one) * inputs[0]).sum()), mine):  # the gradient of a gradient
        close(got, 6 * mean * inputs[0])
    refused(NotImplementedError, "gradient of an allreduce",
            jax.grad(lambda one: gradring.allreduce(one, gradring.Max).sum()), mine)


def process_sets():
    even, odd = (gradring.add_process_set(range(first, size, 2)) for first in (0, 1))
    own = even if rank % 2 == 0 else odd
    expected = np.mean([inputs[one] for one in own.ranks], axis=0)
    for got in both(lambda one: gradring.allreduce(one, process_set=own), mine):
        close(got, expected)
    for got in both(lambda one: gradring.allgather(one, process_set=own), mine):
        close(got, np.concatenate([inputs[one] for one in own.ranks]))
    for got in both(lambda one: gradring.broadcast(one, own.ranks[1], process_set=own), mine):
        close(got, inputs[own.ranks[1]])
    for call in (gradring.reducescatter, jax.jit(gradring.reducescatter, static_argnames="process_set")):
        refused(ValueError, "not in the process set", call, mine, process_set=odd if rank % 2 == 0 else even)
    gradring.remove_process_set(even)
    gradring.remove_process_set(odd)


def several_devices():
    mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    for number, got in enumerate(both(gradring.allreduce, jax.device_put(mine, split))):
        close(got, mean)
        assert number == 1 or got.sharding == split
    refused(NotImplementedError, "inside shard_map or pmap", jax.jit(jax.shard_map(
        gradring.allreduce, mesh=mesh, in_specs=split.spec, out_specs=split.spec)), mine)


def mistakes():
    refused(gradring.GradringError, "mismatch", gradring.allreduce, jnp.ones(3 + rank % 2))
    refused_last("mismatch", jax.jit(gradring.allreduce), jnp.ones(3 + rank % 2))
    for got in both(gradring.allreduce, mine):  # and all is well again
        close(got, mean)
    refused(TypeError, "cannot move", gradring.allreduce, jnp.ones(3, jnp.complex64))
    for call in (gradring.broadcast_parameters, jax.jit(gradring.broadcast_parameters)):
        refused(TypeError, "jax.random.key_data", call, {"w": mine, "key": jax.random.key(rank)})


def counted():
    from gradring import exchange

    original = exchange.allreduce

    def counting(*args, **keywords):
        calls.append(None)
        return original(*args, **keywords)
    exchange.allreduce = counting


calls: list = []




counted()
for one in (sums_and_averages, types, trees, rows_put_together, broadcasts, shares, each_to_each, order, gradients,
            process_sets, several_devices, mistakes):
    one()
    say(ok=one.__name__)
gradring.shutdown()
