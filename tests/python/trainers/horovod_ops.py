"""Horovod's names for torch: each op against what torch computes of all ranks' inputs. Says "ok" for each."""

import gradring
import gradring.torch as hvd
import torch
from expect import refused
from report import say

hvd.init()
rank, size = hvd.rank(), hvd.size()
inputs = [torch.randn(8, 5, generator=torch.Generator().manual_seed(one)) for one in range(size)]  # of all ranks
mine = inputs[rank]
total = torch.stack(inputs).sum(0)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def close(got, expected, tolerance=1e-5):
    assert got.shape == expected.shape, (got.shape, expected.shape)
    assert torch.allclose(got.double(), expected.double(), rtol=tolerance, atol=tolerance), (got, expected)


def names():
    assert all(hasattr(hvd, name) for name in hvd.__all__) and set(gradring.common.__all__) <= set(hvd.__all__)
    assert hvd.HorovodInternalError is hvd.GradringError and hvd.Average is gradring.Average


def sums_of_all_types():
    for dtype in FLOATS + INTEGERS:
        given = [(one * 3).abs().to(dtype) for one in inputs]
        whole = torch.stack([one.double() for one in given]).sum(0)
        rough = 0.05 if dtype in (torch.float16, torch.bfloat16) else 1e-6
        got = hvd.allreduce(given[rank], op=hvd.Sum)
        assert got.dtype == dtype and not torch.equal(got, given[rank])
        close(got, whole, rough)
        average = hvd.allreduce(given[rank])
        close(average, whole / size if dtype in FLOATS else (whole / size).trunc(), rough)
    numbers = [torch.arange(-3, 4) * 3 + one for one in range(size)]
    assert torch.equal(hvd.allreduce(numbers[rank]), sum(numbers).div(size, rounding_mode="trunc"))
    assert hvd.allreduce(torch.tensor(rank == 2), op=hvd.Max)
    assert hvd.allreduce(torch.tensor(float(rank)), average=False) == sum(range(size))
    assert hvd.allreduce(torch.empty(0, 3)).shape == (0, 3)
    refused(TypeError, "cannot move", hvd.allreduce, mine.to(torch.complex64))
    refused(TypeError, "no torch.Tensor", hvd.allreduce, [1.0])
    refused(TypeError, "compression='fp16'; it takes one of Compression", hvd.allreduce, mine, compression="fp16")
    refused(ValueError, "not both", hvd.allreduce, mine, average=True, op=hvd.Sum)


def other_reductions_and_factors():
    stacked = torch.stack(inputs)
    for op, whole in ((hvd.Min, stacked.amin(0)), (hvd.Max, stacked.amax(0)), (hvd.Product, stacked.prod(0))):
        close(hvd.allreduce(mine, op=op), whole)
    close(hvd.allreduce(mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), 1.5 * total)
    apart = torch.eye(size)[rank].clone()
    close(hvd.allreduce(apart, op=hvd.Adasum), torch.ones(size))
    assert hvd.allreduce_(apart, op=hvd.Adasum) is apart
    refused(TypeError, "Adasum of bfloat16; it takes float16", hvd.allreduce, apart.bfloat16(), op=hvd.Adasum)
    close(apart, torch.ones(size))


def in_place():
    for given in (mine.clone(), mine.t().clone().t(), mine.repeat_interleave(2, 1)[:, ::2]):  # and not dense
        assert hvd.allreduce_(given) is given
        close(given, total / size)
    leaf = torch.nn.Parameter(mine.clone())
    assert hvd.allreduce_(leaf, op=hvd.Sum) is leaf and leaf.requires_grad
    close(leaf.detach(), total)
    given = [mine.clone(), torch.full((3,), rank)]
    got = hvd.grouped_allreduce_(given, op=hvd.Sum)
    assert all(one is other for one, other in zip(got, given, strict=True))
    close(given[0], total)
    assert given[1].tolist() == [sum(range(size))] * 3
    got = hvd.broadcast_(leaf, 1)
    assert got is leaf
    given = torch.full((2, 3), rank).t()
    hvd.broadcast_(given, 2)
    assert (given == 2).all()
    given = torch.full((1,), complex(0, rank)).conj()  # whose imaginary part is in memory with the other sign
    assert hvd.allreduce(given.imag, op=hvd.Sum).item() == -sum(range(size))
    hvd.broadcast_(given.imag, 2)
    assert given.item() == complex(0, -2)


def by_handles():
    handles = [hvd.allreduce_async(mine * i, name=f"g{i}", op=hvd.Sum) for i in range(8)]
    handles += [hvd.allreduce_async_(mine.clone(), name="g", op=hvd.Sum)]
    for i, handle in enumerate(handles):
        close(hvd.synchronize(handle), total * i if i < 8 else total)
        assert hvd.poll(handle)
    assert hvd.synchronize(None) is None
    close(hvd.synchronize(hvd.grouped_allreduce_async([mine]))[0], total / size)
    close(hvd.synchronize(hvd.grouped_allreduce_async_([mine.clone()]))[0], total / size)
    close(hvd.synchronize(hvd.allgather_async(mine)), torch.cat(inputs))
    close(hvd.synchronize(hvd.grouped_allgather_async([mine]))[0], torch.cat(inputs))
    close(hvd.synchronize(hvd.broadcast_async(mine, 1)), inputs[1])
    close(hvd.synchronize(hvd.broadcast_async_(mine.clone(), 1)), inputs[1])
    rows, received = hvd.synchronize(hvd.alltoall_async(torch.arange(size)))
    assert rows.tolist() == [rank] * size and received.tolist() == [1] * size
    close(hvd.synchronize(hvd.reducescatter_async(mine)), (total / size).tensor_split(size)[rank])
    close(hvd.synchronize(hvd.grouped_reducescatter_async([mine], op=hvd.Sum))[0], total.tensor_split(size)[rank])


def sparse():
    dense = [one * (one > 1) for one in inputs]
    got = hvd.synchronize(hvd.sparse_allreduce_async(dense[rank].to_sparse(), name="sparse", op=hvd.Sum))
    assert got.is_sparse
    close(got.to_dense(), sum(dense))
    close(hvd.sparse_allreduce_async(dense[rank].to_sparse(1), name="sparse", op=hvd.Average)().to_dense(),
          sum(dense) / size)
    taller = torch.zeros(inputs[0].shape[0] + (rank == 1), *inputs[0].shape[1:]).to_sparse()
    refused(hvd.HorovodInternalError, "on the shape of 'allgather.taller.sparse'", hvd.sparse_allreduce_async(taller, "taller").wait)
    refused(TypeError, "sparse_allreduce_async", hvd.allreduce, dense[rank].to_sparse())
    refused(NotImplementedError, "Average or Sum", hvd.sparse_allreduce_async, dense[rank].to_sparse(), "s", hvd.Max)


def rows():
    ragged = [one[:i] for i, one in enumerate(inputs)]
    assert torch.equal(hvd.allgather(ragged[rank]), torch.cat(ragged))
    assert hvd.grouped_allgather([]) == hvd.grouped_allreduce([]) == hvd.grouped_reducescatter([]) == []
    got = hvd.grouped_allgather([ragged[rank], torch.tensor([[rank]], dtype=torch.bfloat16)])
    assert torch.equal(got[0], torch.cat(ragged)) and got[1].flatten().tolist() == list(range(size))
    refused(ValueError, "scalar", hvd.allgather, torch.tensor(1.0))
    splits = torch.arange(size, dtype=torch.int64) + 1
    got, received = hvd.alltoall(torch.arange(size).repeat_interleave(splits), splits)
    assert (got == rank).all() and received.dtype == torch.int64 and received.tolist() == [rank + 1] * size
    assert hvd.alltoall(torch.arange(size), splits=[1] * size)[1].dtype == torch.int32
    assert (hvd.alltoall(torch.arange(size)) == rank).all()
    refused(ValueError, "of integers", hvd.alltoall, torch.arange(size), torch.ones(size))
    close(hvd.reducescatter(mine, op=hvd.Sum), total.tensor_split(size)[rank])
    got = hvd.grouped_reducescatter([mine, torch.ones(size + 1, dtype=torch.int64)], op=hvd.Sum)
    assert got[1].tolist() == [size] * (2 if rank == 0 else 1)
    refused(NotImplementedError, "Average or Sum", hvd.reducescatter, mine, op=hvd.Adasum)


class Whole:
    """A compression of one's own."""

    @staticmethod
    def compress(tensor):
        return tensor.round().to(torch.int32), tensor.dtype

    @staticmethod
    def decompress(tensor, context):
        return tensor.to(context)


def compressed():
    large = [one.repeat(4096, 4) for one in inputs]  # small ones travel as they are
    for compression, rough in ((hvd.Compression.fp16, 2e-3), (hvd.Compression.bf16, 2e-2)):
        got = hvd.allreduce(large[rank], op=hvd.Sum, compression=compression)
        assert got.dtype == torch.float32
        close(got, sum(large), rough * size)
        assert not torch.equal(got, sum(large)), "nothing was rounded"
        got = hvd.allreduce(large[rank].double(), op=hvd.Sum, compression=compression)
        assert got.dtype == torch.float64
        close(got, sum(large), rough * size)
        got = hvd.grouped_allreduce([large[rank], torch.arange(3)], op=hvd.Sum, compression=compression)
        assert [one.dtype for one in got] == [torch.float32, torch.int64]
        got = hvd.reducescatter(large[rank], op=hvd.Sum, compression=compression)
        close(got, sum(large).tensor_split(size)[rank], rough * size)
        narrow, context = compression.compress(mine)
        assert narrow.dtype == compression.dtype and compression.decompress(narrow, context).dtype == torch.float32
    assert hvd.allreduce(torch.arange(3), compression=hvd.Compression.fp16).dtype == torch.int64
    close(hvd.allreduce(mine, op=hvd.Sum, compression=Whole), sum(one.round() for one in inputs))


def gradient(function, tensor=None):
    """Of the sum of what `function` gives, weighted by place, with respect to this rank's input."""
    leaf = (mine if tensor is None else tensor).clone().requires_grad_()
    output = function(leaf)
    weights = torch.arange(output.numel(), dtype=output.dtype).view(output.shape) * (rank + 1)
    output.backward(weights)
    return leaf.grad


def gradients():
    places = torch.arange(40.0).view(8, 5)
    ranks = sum(range(1, size + 1))
    close(gradient(lambda one: hvd.allreduce(one, op=hvd.Sum)), places * ranks)
    close(gradient(hvd.allreduce), places * ranks / size)
    close(gradient(lambda one: hvd.allreduce(one, op=hvd.Sum, prescale_factor=2, postscale_factor=3)),
          places * ranks * 6)
    close(gradient(lambda one: hvd.allreduce(one, op=hvd.Sum, compression=hvd.Compression.fp16)), places * ranks)
    close(gradient(lambda one: hvd.allreduce(one.double(), op=hvd.Sum, compression=hvd.Compression.bf16)),
          places * ranks, 0.02)
    close(gradient(lambda one: hvd.grouped_allreduce([one, torch.arange(3)], op=hvd.Sum)[0]), places * ranks)
    close(gradient(lambda one: hvd.broadcast(one, 1)), places * ranks / size if rank == 1 else places * 0)
    before = sum(range(rank))
    gathered = torch.arange(sum(range(size)) * 5.0).view(-1, 5)[before:before + rank] * ranks / size
    close(gradient(hvd.allgather, mine[:rank]), gathered)
    close(gradient(lambda one: hvd.grouped_allgather([one])[0], mine[:rank]), gathered)
    # Rows 2r and 2r + 1 are rank r's; there they are numbers 2 * rank and 2 * rank + 1.
    back = torch.cat([places[2 * rank:2 * rank + 2] * (one + 1) for one in range(size)])
    close(gradient(hvd.alltoall), back)
    close(gradient(lambda one: hvd.alltoall(one, [2] * size)[0]), back)
    parts = torch.cat([places[:2] * (one + 1) for one in range(size)])
    close(gradient(hvd.reducescatter), parts)
    close(gradient(lambda one: hvd.reducescatter(one, op=hvd.Sum, prescale_factor=2)), parts * 2 * size)
    close(gradient(lambda one: hvd.grouped_reducescatter([one], op=hvd.Sum)[0]), parts * size)
    twice = mine.clone().requires_grad_()
    first, = torch.autograd.grad((hvd.allreduce(twice, op=hvd.Sum) ** 2).sum(), twice, create_graph=True)
    first.sum().backward()
    close(twice.grad, torch.full((8, 5), 2.0 * size * size))


def process_sets():
    even, odd = hvd.add_process_set(range(0, size, 2)), hvd.add_process_set(range(1, size, 2))
    own = odd if rank % 2 else even
    of_own = [inputs[one] for one in own.ranks]
    close(hvd.allreduce(mine, process_set=own), sum(of_own) / len(of_own))
    close(gradient(lambda one: hvd.allgather(one, process_set=own)),
          torch.arange(40.0 * len(of_own)).view(-1, 5).split(8)[own.rank()] * sum(own.ranks) / len(of_own)
          + torch.arange(40.0 * len(of_own)).view(-1, 5).split(8)[own.rank()])
    close(hvd.broadcast(mine, own.ranks[1], process_set=own), of_own[1])
    assert hvd.allgather_object(rank, process_set=own) == own.ranks
    hvd.barrier(process_set=own)
    hvd.remove_process_set(even)
    hvd.remove_process_set(odd)


def batch_norm():
    torch.manual_seed(0)
    for shape in ((5,), (5, 7), (5, 3, 2)):
        sizes = [2 * one for one in range(size)]  # one rank has nothing
        batches = torch.randn(sum(sizes), *shape) * 3 + 1
        weights = torch.randn_like(batches)
        whole, own = batches.clone().requires_grad_(), batches.split(sizes)[rank].clone().requires_grad_()
        one = {1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm2d}[len(shape)](5)
        many = hvd.SyncBatchNorm(5)
        for layer in (one, many):
            torch.nn.init.uniform_(layer.weight, generator=torch.Generator().manual_seed(3))
        expected, got = one(whole), many(own)
        close(got, expected.split(sizes)[rank])
        (expected * weights).sum().backward()
        (got * weights.split(sizes)[rank]).sum().backward()
        close(own.grad, whole.grad.split(sizes)[rank], 1e-4)
        close(hvd.allreduce(many.weight.grad, op=hvd.Sum), one.weight.grad, 1e-4)
        close(hvd.allreduce(many.bias.grad, op=hvd.Sum), one.bias.grad, 1e-4)
        close(many.running_mean, one.running_mean)
        close(many.running_var, one.running_var)
        close(many.eval()(own), one.eval()(own))
    plain = hvd.SyncBatchNorm(5, affine=False, momentum=None, track_running_stats=True)
    assert plain(mine.half()).dtype == torch.float16 and plain.num_batches_tracked == 1
    close(plain.running_mean, torch.cat(inputs).half().float().mean(0), 1e-3)
    assert plain(mine[:0]).shape == mine[:0].shape and plain.num_batches_tracked == 1
    close(plain.running_mean, torch.cat(inputs).half().float().mean(0), 1e-3)
    refused(ValueError, "two dimensions", plain, torch.ones(5))


def more_at_once_than_there_are_names():
    """Of ops without a name, each has its own result."""
    for start in (lambda number: hvd.allgather_async(torch.tensor([number])),
                  lambda number: hvd.alltoall_async(torch.full((size,), number))):
        for _ in range(4):
            handles = [start(100 * i + rank) for i in range(300)]
            for i, handle in enumerate(handles):
                got = handle.wait()
                got = got[0] if isinstance(got, tuple) else got
                assert got.tolist() == [100 * i + one for one in range(size)], i


def uneven_data():
    for _ in range(rank):
        hvd.allreduce(torch.ones(3), name="step", op=hvd.Sum)
    assert hvd.join() == size - 1


def failures():
    refused(hvd.HorovodInternalError, "mismatch", hvd.allreduce, torch.ones(3 + rank % 2))
    refused(hvd.HorovodInternalError, "do not agree", hvd.allgather, torch.ones(3, 2 + rank % 2))
    handle = hvd.allgather_async(mine, name="twice") if rank == 0 else None
    if rank == 0:
        refused(ValueError, "still under way", hvd.allgather_async, mine, name="twice")
    hvd.barrier()
    got = handle.wait() if rank == 0 else hvd.allgather(mine, name="twice")
    close(got, torch.cat(inputs))


for check in (names, sums_of_all_types, other_reductions_and_factors, in_place, by_handles, sparse, rows, compressed,
              gradients, process_sets, batch_norm, more_at_once_than_there_are_names, uneven_data, failures):
    check()
    say(ok=check.__name__)
hvd.shutdown()
