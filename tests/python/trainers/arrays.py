"""Each op of `import gradring` on NumPy arrays, against what NumPy computes. Says "ok" for each."""

import contextlib
import gc
import os

import gradring
import numpy as np
from expect import refused
from report import say

gradring.init()
rank, size = gradring.rank(), gradring.size()
inputs = [np.random.default_rng(one).standard_normal((6, 5)) for one in range(size)]  # of all ranks


def places():
    assert (gradring.local_rank(), gradring.local_size()) == (rank % 2, 2)
    assert (gradring.cross_rank(), gradring.cross_size()) == (rank // 2, size // 2)
    assert gradring.is_homogeneous()


def sums():
    for dtype in ("float32", "float64", "float16", "int8", "int32", "int64", "uint8", "uint16"):
        mine = (inputs[rank] * 3).astype(dtype)
        total = sum((one * 3).astype(dtype).astype("float64") for one in inputs)
        got = gradring.allreduce(mine, op=gradring.Sum)
        assert got.dtype == dtype and got.shape == mine.shape
        assert np.allclose(got, total.astype(dtype), rtol=1e-2 if dtype == "float16" else 1e-6), dtype


def averages():
    assert np.allclose(gradring.allreduce(inputs[rank]), sum(inputs) / size)
    numbers = np.arange(5) + rank
    assert (gradring.allreduce(numbers) == sum(np.arange(5) + one for one in range(size)) // size).all()
    assert (gradring.allreduce(-numbers) == -(sum(np.arange(5) + one for one in range(size)) // size)).all()
    assert (gradring.allreduce(numbers, average=False) == sum(np.arange(5) + one for one in range(size))).all()
    for dtype in ("int8", "int16", "int32", "uint8", "uint16", "uint32"):  # whose sum has no room in its type
        limits = np.iinfo(dtype)
        large = np.array([[limits.min + rank % 2, limits.max - rank % 2]] * size, dtype)
        half = [int((2 * limits.min + 1) / 2), limits.max - 1]  # rounded towards 0
        given = large.copy()
        assert gradring.allreduce(given).tolist() == [half] * size and (given == large).all(), dtype
        assert gradring.allreduce(given, out=given) is given and given.tolist() == [half] * size, dtype
        assert gradring.reducescatter(large).tolist() == [half], dtype
        got = gradring.allreduce(np.array(limits.max, dtype))
        assert got.shape == () and got.dtype == dtype and got == limits.max, got
    refused(TypeError, "average of bool", gradring.allreduce, np.ones(3, bool))
    refused(TypeError, "average of bool", gradring.reducescatter, np.ones(size, bool))
    refused(ValueError, "not both", gradring.allreduce, numbers, average=True, op=gradring.Sum)
    refused(TypeError, "is given as op=", gradring.allreduce, numbers, gradring.Sum)
    for op in ("sum", 1, np.add):
        refused(TypeError, "ops are gradring's", gradring.allreduce, numbers, op=op)


def other_reductions():
    for op, function in ((gradring.Min, np.min), (gradring.Max, np.max), (gradring.Product, np.prod)):
        assert np.allclose(gradring.allreduce(inputs[rank], op=op), function(inputs, axis=0))


def factors():
    got = gradring.allreduce(inputs[rank], op=gradring.Sum, prescale_factor=0.5, postscale_factor=3.0)
    assert np.allclose(got, 1.5 * sum(inputs))
    for shape in (3, ()):
        got = gradring.allreduce(np.full(shape, 10 + rank), op=gradring.Sum, prescale_factor=0.5, postscale_factor=2.0)
        assert (got == 2 * sum((10 + one) // 2 for one in range(size))).all() and got.shape == np.empty(shape).shape
    for factor in ("prescale_factor", "postscale_factor"):
        refused(gradring.GradringError, "0 is nothing to scale by", gradring.allreduce, inputs[rank], **{factor: 0.0})
        for array in (inputs[rank], np.ones(3, int)):
            refused(ValueError, "nan is nothing to scale by", gradring.allreduce, array, **{factor: np.nan})
            refused(TypeError, "'2' is nothing to scale by: prescale_factor and", gradring.allreduce, array, **{factor: "2"})


def in_place_and_not_dense():
    mine = np.asfortranarray(inputs[rank])
    assert gradring.allreduce(mine, out=mine) is mine and np.allclose(mine, sum(inputs) / size)
    mine = np.repeat(inputs[rank], 2, axis=1)[:, ::2]
    gradring.allreduce(mine, out=mine)
    assert np.allclose(mine, sum(inputs) / size)
    mine = inputs[rank].astype(">f8" if rank % 2 else "<f8")  # the other order of bytes
    assert np.allclose(gradring.allreduce(mine), sum(inputs) / size)
    assert np.allclose(gradring.broadcast(mine, 1), inputs[1])
    assert np.allclose(gradring.allgather(mine), np.concatenate(inputs))
    assert np.allclose(gradring.allreduce(mine, op=gradring.Adasum), gradring.allreduce(inputs[rank], op=gradring.Adasum))
    gradring.allreduce(mine, out=mine)
    assert np.allclose(mine, sum(inputs) / size)


class Copied:
    """As a tf.Variable is one."""

    def __array__(self, dtype=None, copy=None):
        return inputs[rank].copy()


def what_cannot_be_written():
    mine = inputs[rank].copy()
    mine.flags.writeable = False
    refused(TypeError, "cannot be written", gradring.allreduce, mine, out=mine)
    refused(TypeError, "cannot be written", gradring.allreduce, mine, op=gradring.Adasum, out=mine)
    refused(TypeError, "cannot be written", gradring.broadcast, mine, 0, out=mine)
    refused(TypeError, "cannot be written", gradring.allreduce, mine, out=[0.0] * len(mine))
    assert np.array_equal(mine, inputs[rank])
    neighbours = [gradring.empty(512) for _ in range(4)]  # which lie one behind the other
    for one in neighbours:
        one[:] = 7
    refused(ValueError, "2048 float32, and the output 512 float32", gradring.allreduce, np.ones(2048, np.float32), out=neighbours[1])
    refused(ValueError, "512 float64, and the output 512 float32", gradring.broadcast, np.ones(512), 0, out=neighbours[1])
    assert all((one == 7).all() for one in neighbours)
    for output in (Copied(), [0.0] * 30):
        refused(TypeError, "the output is a", gradring.allreduce, mine, op=gradring.Adasum, out=output)
    refused(ValueError, "the output 29 float64", gradring.allreduce, mine, op=gradring.Adasum, out=np.empty(29))
    refused(TypeError, "Copied, which gives nothing but copies", gradring.allreduce, mine, out=Copied())
    text = b"of one rank alone"
    refused(TypeError, "cannot be written", gradring.allreduce, text, op=gradring.Sum, out=text)


def shared_memory():
    array = gradring.empty((6, 5), np.float64)
    child = os.fork()
    if child == 0:  # the parent has what is idle in that memory
        with contextlib.suppress(gradring.GradringError):
            gradring.empty((6, 5), np.float64)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    array[...] = inputs[rank]
    gradring.allreduce(array, out=array)
    assert np.allclose(array, sum(inputs) / size)
    view = array[2:4]
    del array
    gc.collect()
    assert np.allclose(view, (sum(inputs) / size)[2:4])
    for shape, made in ((0, (0,)), (np.int64(3), (3,)), ((), ()), (np.array([2, 3]), (2, 3))):
        assert gradring.empty(shape).shape == made
    refused(ValueError, "shape (2, -1)", gradring.empty, (2, -1))
    refused(ValueError, "shape (-4,)", gradring.empty, -4)
    refused(TypeError, "complex", gradring.empty, 3, np.complex64)


def by_name_in_any_order():
    names = [f"gradient {i}" for i in range(20)]
    order = names if rank % 2 else names[::-1]
    handles = {name: gradring.allreduce_async(np.array([float(name[9:])]), name=name, op=gradring.Sum)
               for name in order}
    refused(ValueError, "still under way", twice)
    gradring.barrier()  # before anybody goes on to what ends it
    for name, handle in handles.items():
        assert gradring.synchronize(handle)[0] == size * float(name[9:])
        assert gradring.poll(handle)


def twice():
    """Also where nobody has the first one's handle."""
    gradring.allreduce_async(np.ones(1), name=f"of rank {rank} alone", op=gradring.Sum)
    gc.collect()
    gradring.allreduce_async(np.ones(1), name=f"of rank {rank} alone")


def what_the_others_wait_for():
    """So that what `twice` left under way ends."""
    handles = [gradring.allreduce_async(np.ones(1), name=f"of rank {one} alone", op=gradring.Sum)
               for one in range(size) if one != rank]
    for handle in handles:
        assert gradring.synchronize(handle) == [size]


def groups_of_arrays():
    got = gradring.grouped_allreduce([inputs[rank], np.array([rank])], op=gradring.Sum)
    assert np.allclose(got[0], sum(inputs)) and got[1] == [size * (size - 1) // 2]
    got = gradring.grouped_allgather([inputs[rank][:rank], np.array([[rank]])])
    assert np.allclose(got[0], np.concatenate([one[:i] for i, one in enumerate(inputs)]))
    assert (got[1][:, 0] == range(size)).all()
    got = gradring.grouped_reducescatter([inputs[rank], np.ones((size, 2))], op=gradring.Sum)
    assert (got[1] == size).all() and got[1].shape == (1, 2)


def groups_of_other_lengths():
    """Are not one another's: ranks that differ wait, and nobody sums what is not of one place."""
    mine, other = (2, 3) if rank % 2 else (3, 2)
    early = gradring.grouped_allreduce_async([np.full(2, rank)] * mine, op=gradring.Sum)
    refused(gradring.GradringError, "timeout after 0.3 s", early.wait, 0.3)
    refused(TypeError, "it takes seconds", early.wait, "0.3")
    gradring.allreduce(np.ones(1), name="all have waited")
    late = gradring.grouped_allreduce_async([np.full(2, 1)] * other, op=gradring.Sum)
    assert [len(handle.wait()) for handle in (early, late)] == [mine, other]


def rows_put_together():
    whole = np.concatenate([one[:i] for i, one in enumerate(inputs)])
    assert np.array_equal(gradring.allgather(inputs[rank][:rank]), whole)
    handles = [gradring.allgather_async(np.full((i, 2), rank), name=f"rows {i}") for i in range(6)]
    for i in range(6) if rank % 2 else range(5, -1, -1):  # nobody may need another's wait
        assert gradring.synchronize(handles[i]).shape == (i * size, 2)
    refused(gradring.GradringError, "do not agree on the widths", gradring.allgather, np.ones((2, 3 + rank % 2)))
    refused(ValueError, "scalar", gradring.allgather, np.float32(1))


def broadcasts():
    assert np.array_equal(gradring.broadcast(inputs[rank], 1), inputs[1])
    mine = inputs[rank].copy()
    assert gradring.broadcast(mine, 2, out=mine) is mine and np.array_equal(mine, inputs[2])
    refused(ValueError, "no rank 99", gradring.broadcast, mine, 99)
    mine = {"from": rank, "rows": [1, 2]} if rank == 3 else None  # of another type than the root's
    assert gradring.broadcast_object(mine, 3) == {"from": 3, "rows": [1, 2]}
    assert gradring.allgather_object("x" * rank) == ["x" * one for one in range(size)]


def each_to_each():
    rows = np.repeat(np.arange(size), np.arange(size) + 1)
    got, received = gradring.alltoall(rows, np.arange(size) + 1)
    assert (got == rank).all() and (received == rank + 1).all()
    assert (gradring.alltoall(np.arange(size)) == rank).all()
    refused(ValueError, "with splits", gradring.alltoall, rows, [1])


def shares_of_sums():
    total = sum(inputs)
    shares = np.array_split(total, size)
    assert np.allclose(gradring.reducescatter(inputs[rank], op=gradring.Sum), shares[rank])
    assert np.allclose(gradring.reducescatter(inputs[rank]), shares[rank] / size)
    refused(NotImplementedError, "Average or Sum", gradring.reducescatter, inputs[rank], op=gradring.Max)


def adaptive_sums():
    apart = np.eye(size, dtype=np.float32)[rank]
    assert np.allclose(gradring.allreduce(apart, op=gradring.Adasum), 1)
    assert np.allclose(gradring.allreduce(np.ones(7), op=gradring.Adasum), 1)
    got = gradring.allreduce(apart.astype(np.float16), op=gradring.Adasum)
    assert got.dtype == np.float16 and np.allclose(got, 1)
    output = np.zeros((2, size))[:, ::-1]
    assert gradring.allreduce(np.arange(2.0 * size), op=gradring.Adasum, out=output) is output
    assert np.allclose(output.ravel(), np.arange(2 * size))
    mine = np.full(3, 2.0)
    assert gradring.allreduce(mine, op=gradring.Adasum, out=mine) is mine and np.allclose(mine, 2)
    refused(TypeError, "Adasum of int64", gradring.allreduce, np.ones(3, np.int64), op=gradring.Adasum)


def process_sets():
    even, odd = (gradring.add_process_set(range(first, size, 2)) for first in (0, 1))
    mine, other = (even, odd) if rank % 2 == 0 else (odd, even)
    assert mine.included() and not other.included() and mine.rank() == rank // 2 and other.rank() is None
    assert gradring.process_set_ids() == [0, 1, 2]
    assert gradring.allreduce(np.array([rank]), op=gradring.Sum, process_set=mine) == [sum(mine.ranks)]
    assert gradring.broadcast(np.array([rank]), mine.ranks[1], process_set=mine) == [mine.ranks[1]]
    assert np.array_equal(gradring.allgather(np.full(rank, rank), process_set=mine),
                          np.concatenate([np.full(one, one) for one in mine.ranks]))
    for op in (gradring.allreduce, gradring.allgather, gradring.reducescatter, gradring.alltoall):
        refused(ValueError, "not in the process set", op, np.ones(1), process_set=other)
    first, last = mine.ranks[0], mine.ranks[-1]
    refused(gradring.GradringError, f"rank {first} has float64, rank {last} has int64", gradring.allgather,
            np.ones(1, int if rank == last else float), process_set=mine)
    refused(ValueError, "has these ranks already", gradring.add_process_set, mine.ranks)
    refused(ValueError, "in a job of", gradring.add_process_set, [0, 99])
    for ranks in ("01", 1, [0, "1"]):
        refused(TypeError, "it takes a list of ranks", gradring.add_process_set, ranks)
    assert gradring.remove_process_set(even) and gradring.remove_process_set(odd)
    assert not gradring.remove_process_set(gradring.global_process_set)
    refused(ValueError, "has not been added", mine.size)


def mistakes():
    refused(gradring.GradringError, "mismatch", gradring.allreduce, np.ones(3 + rank % 2))
    refused(TypeError, "cannot move", gradring.allreduce, np.ones(3, np.complex64))
    refused(TypeError, "no array", gradring.allreduce, object())
    refused(TypeError, "no masks", gradring.allreduce, np.ma.masked_greater(inputs[rank], 0))
    refused(ValueError, "500 bytes", gradring.allreduce, np.ones(3), name="x" * 600)
    if rank == 0:  # the others' later ones are of the same place in the program
        refused(ValueError, "scalar", gradring.allgather, np.float32(1))
        refused(ValueError, "with splits", gradring.alltoall, np.ones(3), [1])
        refused(TypeError, "Adasum of int64", gradring.allreduce, np.ones(3, np.int64), op=gradring.Adasum)
    for op in (gradring.allgather_async, gradring.alltoall_async):
        op(np.ones(size)).wait(30)
    gradring.allreduce_async(np.ones(size), op=gradring.Adasum).wait(30)
    refused(TypeError, "float", gradring.alltoall, np.ones(size), [1.5] * size)
    refused(TypeError, "takes a list of ranks", gradring.ProcessSet, [0.5])
    refused(ValueError, "has a NUL", gradring.allreduce, np.ones(3), name="one\0of several")


def uneven_data():
    # More than what travels as it is. At the end nobody is left on the first node.
    numbers = np.full(70_000, rank + 1, np.float32)
    for step in range(rank):
        gradring.allreduce(np.ones(3), name="step", op=gradring.Sum)
        for op, of_all in ((gradring.Min, min), (gradring.Max, max)):
            got = gradring.allreduce(numbers, name=str(op), op=op, wire=gradring.Wire.INT8)
            assert np.allclose(got, of_all(range(step + 2, size + 1)), 0.05), (op, step, got)
    assert gradring.join() == size - 1
    if rank != 0:
        refused(gradring.GradringError, "rank 0 has joined", gradring.allgather, np.ones(3))
    gradring.join()
    assert gradring.allgather(np.full(1, rank)).tolist() == list(range(size))


def other_libraries():
    import torch

    got = gradring.allreduce(torch.full((3,), float(rank)), op=gradring.Sum)
    assert isinstance(got, torch.Tensor) and got.tolist() == [sum(range(size))] * 3
    got = gradring.allreduce(bytearray([rank, 1]), op=gradring.Sum)
    assert got.tolist() == [sum(range(size)), size]


def another_life():
    gradring.shutdown()
    assert not gradring.is_initialized()
    refused(ValueError, "not been initialized", gradring.rank)
    gradring.init()
    assert (gradring.rank(), gradring.size()) == (rank, size)
    gradring.barrier()
    gradring.shutdown()
    sets = [gradring.ProcessSet(ranks) for ranks in ([0, 1], [1, 0])]
    for error, words, unfit in ((ValueError, "has these ranks already", sets), (TypeError, "not iterable", sets[0])):
        refused(error, words, gradring.init, process_sets=unfit)
        assert not gradring.is_initialized()
    gradring.init([*range(size), 0], sets[:1])  # that one is named twice makes no other rank
    assert gradring.process_set_ids() == [0, 1] and sets[0].included() == (rank < 2)


for one in (places, sums, averages, other_reductions, factors, in_place_and_not_dense, what_cannot_be_written,
            shared_memory, by_name_in_any_order, what_the_others_wait_for, groups_of_arrays, groups_of_other_lengths,
            rows_put_together, broadcasts, each_to_each, shares_of_sums, adaptive_sums, process_sets, mistakes, uneven_data,
            other_libraries, another_life):
    one()
    say(ok=one.__name__)
gradring.shutdown()
