"""Every op of torch.distributed, checked against what it must give. Says which were right."""

from datetime import timedelta

import torch
import torch.distributed as dist
from expect import refused
from meet import meet
from report import say

from gradring import GradringError

RANK, SIZE = meet()
TOTAL = SIZE * (SIZE + 1) // 2
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
MOVED = [getattr(torch, f"float8_{kind}") for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")
         if hasattr(torch, f"float8_{kind}")]  # of the last not every PyTorch has heard
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


def of_rank(rank, count=3, dtype=torch.float32):
    return torch.full((count,), rank, dtype=dtype)


def everybody(count=3):
    return [of_rank(rank, count) for rank in range(SIZE)]


def all_reduce_of_every_type():
    for dtype in FLOATS + INTEGERS:
        tensor = of_rank(RANK + 1, 1000, dtype)
        dist.all_reduce(tensor)
        assert (tensor == TOTAL).all(), dtype
    for dtype in UNSIGNED:
        tensor = of_rank(RANK + 1, 1000, dtype)
        dist.all_reduce(tensor)
        assert set(tensor.tolist()) == {TOTAL}, dtype
    for dtype in MOVED:
        tensor = torch.full((5,), 2.0 ** RANK).to(dtype)
        dist.broadcast(tensor, 2)
        assert (tensor.float() == 4).all(), dtype
        refused(GradringError, "never reduced", dist.all_reduce, tensor)


def all_reduce_with_every_op():
    for op, want in ((dist.ReduceOp.SUM, 10), (dist.ReduceOp.PRODUCT, 24), (dist.ReduceOp.MIN, 1),
                     (dist.ReduceOp.MAX, 4), (dist.ReduceOp.BAND, 0), (dist.ReduceOp.BOR, 7), (dist.ReduceOp.BXOR, 4)):
        tensor = of_rank(RANK + 1, dtype=torch.int32)
        dist.all_reduce(tensor, op=op)
        assert (tensor == want).all(), (op, tensor)
    tensor = of_rank(RANK + 1)
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    assert (tensor == 2.5).all()
    for dtype in INTEGERS + UNSIGNED:
        tensor = of_rank((most := min(torch.iinfo(dtype).max, 2**60)) - RANK % 2, dtype=dtype)  # the sum may have no room
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        assert set(tensor.tolist()) == {most - 1}, (dtype, tensor)
    square = (torch.arange(-6, 6).reshape(4, 3) + RANK).t()  # not contiguous; the average has halves, of either sign
    wanted = torch.trunc((torch.arange(-6, 6).reshape(4, 3) + 1.5).t())
    dist.reduce(square, 1, op=dist.ReduceOp.AVG)
    assert RANK != 1 or torch.equal(square.double(), wanted.double()), square
    share = torch.empty(2, dtype=torch.uint8)
    dist.reduce_scatter_tensor(share, torch.arange(2 * SIZE, dtype=torch.uint8) + 200 + RANK, op=dist.ReduceOp.AVG)
    assert share.tolist() == [2 * RANK + 201, 2 * RANK + 202], share
    tensor = of_rank(RANK + 1)
    dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.5))
    assert (tensor == 5).all()


def all_reduce_of_what_is_not_contiguous():
    tensor = (torch.arange(12.0).reshape(3, 4) * (RANK + 1)).t()
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.arange(12.0).reshape(3, 4).t() * TOTAL)


def what_has_the_other_sign_in_its_memory():
    for count in (1, 3):
        mine = torch.full((count,), complex(0, RANK + 1)).conj()
        parts = [torch.empty(count) for _ in range(SIZE)]
        assert mine.imag.is_neg()
        dist.all_gather(parts, mine.imag)
        assert [part[0].item() for part in parts] == [-1 - rank for rank in range(SIZE)], parts
        most = mine.imag
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        assert (most == -1).all() and (mine == complex(0, -1)).all(), most


def parameters_that_are_not_contiguous():
    """Outside of no_grad(), as those that are."""
    square = torch.arange(12.0).reshape(3, 4).t()

    def parameter(factor):
        return torch.nn.Parameter(square.clone(memory_format=torch.preserve_format) * factor)
    whole, sent = parameter(RANK + 1), parameter(RANK)
    dist.all_reduce(whole)
    dist.broadcast(sent, 2)
    lists = [parameter(0) for _ in range(SIZE)]
    dist.all_gather(lists, parameter(RANK))
    for one, factor in [(whole, TOTAL), (sent, 2), *zip(lists, range(SIZE), strict=True)]:
        assert not one.is_contiguous() and one.is_leaf and one.requires_grad
        assert torch.equal(one.detach(), square * factor), (one, factor)


def all_reduce_of_complex_numbers():
    tensor = torch.full((3,), complex(RANK + 1, 1))
    dist.all_reduce(tensor)  # which torch hands over as twice as many floats
    assert (tensor == complex(TOTAL, SIZE)).all()


def complex_numbers_elsewhere():
    """torch hands them over as they are."""
    mine = torch.full((SIZE,), complex(RANK + 1, 1))
    tensor = mine.clone() if RANK != 1 else mine.clone().conj()
    dist.reduce(tensor, 1)
    assert RANK != 1 or (tensor == complex(TOTAL, SIZE - 2)).all(), tensor
    share = torch.empty(1, dtype=mine.dtype)
    dist.reduce_scatter_tensor(share, mine.conj(), op=dist.ReduceOp.AVG)
    assert share.item() == complex(TOTAL / SIZE, -1), share
    dist.reduce_scatter(share, list(mine.split(1)))
    assert share.item() == complex(TOTAL, SIZE), share
    parts = [torch.empty(2, SIZE // 2, dtype=mine.dtype).t() for _ in range(SIZE)] if RANK == 0 else None
    dist.gather(mine.reshape(-1, 2), parts, dst=0)
    assert RANK != 0 or all((part == complex(rank + 1, 1)).all() for rank, part in enumerate(parts)), parts
    got = torch.empty_like(mine)
    dist.all_to_all_single(got, mine, [1] * SIZE, [1] * SIZE)
    assert got.tolist() == [complex(rank + 1, 1) for rank in range(SIZE)]
    refused(TypeError, "no MAX of them", dist.reduce, mine, 0, op=dist.ReduceOp.MAX)
    torch.manual_seed(RANK)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2, dtype=torch.complex64))
    model(torch.full((1, 2), complex(RANK + 1, 0))).sum().abs().backward()
    for name, one in model.named_parameters():
        for value in (one.detach(), one.grad):
            everybody = [torch.empty_like(value) for _ in range(SIZE)]
            dist.all_gather(everybody, value)
            assert value.abs().max() > 0 and all(torch.equal(other, value) for other in everybody), name


def all_reduce_of_bools_and_of_nothing():
    tensor = torch.tensor([True, False, RANK == 0])
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    assert tensor.tolist() == [True, False, True]
    dist.all_reduce(torch.empty(0))


def all_reduce_of_sparse_tensors():
    tensor = torch.sparse_coo_tensor(torch.tensor([[0, 2 + RANK]]), torch.ones(2, 3), (2 + SIZE, 3))
    dist.all_reduce(tensor)
    dense = tensor.to_dense()
    parameter = torch.eye(3).to_sparse().requires_grad_()
    dist.all_reduce(parameter)
    assert torch.equal(parameter.detach().to_dense(), SIZE * torch.eye(3))
    assert (dense[0] == SIZE).all() and (dense[1] == 0).all() and (dense[2:] == 1).all()
    refused(ValueError, "differ: rank 0 has one of shape (3, 2) with 2", dist.all_reduce, torch.ones(3 + RANK, 2).to_sparse())


def many_at_once():
    tensors = [of_rank(RANK + i, 100) for i in range(50)]
    works = [dist.all_reduce(one, async_op=True) for one in tensors]
    for work in reversed(works):
        work.wait()
    assert all((one == 6 + SIZE * i).all() for i, one in enumerate(tensors))


def futures():
    works = [dist.all_reduce(of_rank(RANK + 1), async_op=True) for _ in range(10)]
    chained = [work.get_future().then(lambda future: future.value()[0] * 2) for work in works]
    assert all((one.wait() == 2 * TOTAL).all() for one in chained)
    work = dist.all_reduce(of_rank(1), async_op=True)
    work.wait()
    assert (work.get_future().wait()[0] == SIZE).all(), "a future of what is done already"


def futures_that_end_in_another_order():
    """Rank 0 has that first which the others start last, behind what its second one's callback starts."""
    last, first, chained = (dist.new_group(timeout=timedelta(seconds=10)) for _ in range(3))
    if RANK == 0:
        late = dist.all_reduce(of_rank(1), group=last, async_op=True).get_future()
        soon = dist.all_reduce(of_rank(1), group=first, async_op=True).get_future()
        soon.then(lambda _: dist.all_reduce(of_rank(1), group=chained, async_op=True)).wait()
        assert (late.wait()[0] == SIZE).all()
    else:
        for group in (first, chained, last):
            dist.all_reduce(of_rank(1), group=group)


def broadcast_and_reduce():
    for root in range(SIZE):
        tensor = of_rank(RANK) if RANK != root else of_rank(RANK, 1).expand(3)
        dist.broadcast(tensor, root)
        assert (tensor == root).all()
        tensor = of_rank(RANK + 1)
        dist.reduce(tensor, root)
        assert (tensor == (TOTAL if RANK == root else RANK + 1)).all()


def all_gather():
    parts = [torch.empty(3) for _ in range(SIZE)]
    dist.all_gather(parts, of_rank(RANK))
    assert all(torch.equal(*pair) for pair in zip(parts, everybody(), strict=True))
    whole = torch.empty(3 * SIZE)
    dist.all_gather_into_tensor(whole, of_rank(RANK))
    assert torch.equal(whole, torch.cat(everybody()))


def of_unequal_sizes():
    sizes = [3, 0, 5, 1]
    parts = [torch.empty(size) for size in sizes]
    dist.all_gather(parts, of_rank(RANK, sizes[RANK]))
    assert [part.tolist() for part in parts] == [[rank] * size for rank, size in enumerate(sizes)]
    for op, times in ((dist.ReduceOp.SUM, TOTAL), (dist.ReduceOp.MAX, SIZE)):
        part = torch.empty(sizes[RANK])
        dist.reduce_scatter(part, [torch.arange(1.0, size + 1) * (RANK + 1) for size in sizes], op=op)
        assert torch.equal(part, torch.arange(1.0, sizes[RANK] + 1) * times), (op, part)
    part = torch.empty(sizes[RANK], dtype=torch.int64)
    dist.reduce_scatter(part, [torch.arange(size) + RANK for size in sizes], op=dist.ReduceOp.AVG)
    assert torch.equal(part, torch.arange(sizes[RANK]) + 1)


def reduce_scatter():
    give = torch.arange(2.0 * SIZE)
    for scattered in (lambda to: dist.reduce_scatter_tensor(to, give),
                      lambda to: dist.reduce_scatter(to, list(give.split(2)))):
        part = torch.empty(2)
        scattered(part)
        assert torch.equal(part, give[2 * RANK:2 * RANK + 2] * SIZE)


def gather_and_scatter():
    parts = [torch.empty(3) for _ in range(SIZE)] if RANK == 1 else None
    dist.gather(of_rank(RANK), parts, dst=1)
    assert RANK != 1 or all(torch.equal(*pair) for pair in zip(parts, everybody(), strict=True))
    part = torch.empty(3)
    dist.scatter(part, everybody() if RANK == 2 else None, src=2)
    assert torch.equal(part, of_rank(RANK))


def all_to_all():
    got = torch.empty(SIZE)
    dist.all_to_all_single(got, torch.arange(float(SIZE)) + 10 * RANK)
    assert got.tolist() == [10 * rank + RANK for rank in range(SIZE)]
    got = torch.empty(SIZE * (RANK + 1), 2)
    rows = [rank + 1 for rank in range(SIZE)]
    dist.all_to_all_single(got, torch.full((sum(rows), 2), float(RANK)), [RANK + 1] * SIZE, rows)
    assert got[:, 1].tolist() == [rank for rank in range(SIZE) for _ in range(RANK + 1)]
    counts = [[1, 1, 1, 1], [1, 0, 2, 1], [1, 2, 0, 1], [1, 1, 1, 1]]  # some ranks cannot see that they are not equal everywhere
    got = torch.empty(SIZE)
    dist.all_to_all_single(got, of_rank(RANK, SIZE), [row[RANK] for row in counts], counts[RANK])
    assert got.tolist() == [rank for rank, row in enumerate(counts) for _ in range(row[RANK])]
    parts = [torch.empty(RANK + 1) for _ in range(SIZE)]
    dist.all_to_all(parts, [of_rank(RANK, rank + 1) for rank in range(SIZE)])
    assert [part.tolist() for part in parts] == [[rank] * (RANK + 1) for rank in range(SIZE)]


def objects():
    found = [None] * SIZE
    dist.all_gather_object(found, {"rank": RANK, "text": "x" * RANK})
    assert [one["rank"] for one in found] == list(range(SIZE))
    told = [{"a": 1}] if RANK == 0 else [None]
    dist.broadcast_object_list(told, 0)
    assert told == [{"a": 1}]
    given = [None]
    dist.scatter_object_list(given, [f"for {rank}" for rank in range(SIZE)] if RANK == 0 else None, 0)
    assert given == [f"for {RANK}"]


def one_to_one():
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    got = torch.empty(3)
    work = dist.isend(of_rank(RANK), after)
    dist.recv(got, before)
    work.wait()
    assert (got == before).all()
    # By tags, in another order than they are sent.
    works = [dist.isend(of_rank(10 * tag + RANK), after, tag=tag) for tag in (1, 2)]
    for tag in (2, 1):
        dist.recv(got, before, tag=tag)
        assert (got == 10 * tag + before).all()
    for work in works:
        work.wait()
    both = [dist.P2POp(dist.isend, of_rank(RANK), after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    assert (got == before).all()


def groups():
    ends = dist.new_group([0, SIZE - 1])
    if RANK in (0, SIZE - 1):
        tensor = of_rank(RANK)
        dist.all_reduce(tensor, group=ends)
        assert (tensor == SIZE - 1).all()
    halves = [dist.new_group(range(half, SIZE, 2)) for half in range(2)]
    mine = halves[RANK % 2]
    tensor = of_rank(RANK)
    dist.broadcast(tensor, src=RANK % 2 + 2, group=mine)  # roots are numbered as in the world
    assert (tensor == RANK % 2 + 2).all()
    dist.barrier(group=mine)


def coalesced():
    from torch.distributed import _functional_collectives as functional

    world = dist.group.WORLD
    pair = [of_rank(RANK + 1), of_rank(10 * (RANK + 1), 5)]
    for got, want in zip(functional.all_reduce_coalesced(pair, "sum", world), (TOTAL, 10 * TOTAL), strict=True):
        assert (got == want).all()
    for got, times in zip(functional.all_gather_into_tensor_coalesced(pair, world), (1, 10), strict=True):
        assert torch.equal(got.reshape(SIZE, -1)[:, 0], times * torch.arange(1.0, SIZE + 1))
    whole = [torch.arange(float(SIZE)), torch.ones(2 * SIZE)]
    first, second = functional.reduce_scatter_tensor_coalesced(whole, "sum", [0, 0], world)
    assert first.tolist() == [RANK * SIZE] and second.tolist() == [SIZE, SIZE]
    gathered = [[torch.empty(3), torch.empty(5)] for _ in range(SIZE)]
    dist.all_gather_coalesced(gathered, pair)
    assert all((one[0] == rank + 1).all() and (one[1] == 10 * (rank + 1)).all() for rank, one in enumerate(gathered))


def coalesced_on_a_device():
    """As torch does where a backend coalesces by itself: also what has no coalesced form."""
    world, device = dist.group.WORLD, torch.device("cpu")
    sums, told = [of_rank(RANK + 1), of_rank(RANK + 1, 5)], [of_rank(RANK), of_rank(RANK, 5)]
    with dist._coalescing_manager(world, device):
        for one in sums:
            dist.all_reduce(one)
    with dist._coalescing_manager(world, device, async_ops=True) as manager:
        for one in told:
            dist.broadcast(one, 2, async_op=True)
    manager.wait()
    assert all((one == TOTAL).all() for one in sums) and all((one == 2).all() for one in told)
    assert manager.works[0].is_completed() and manager.works[0].is_success() and manager.works[0].exception() is None
    assert all(got is one for got, one in zip(manager.works[0].result(), told, strict=True))
    with dist._coalescing_manager(world, device):
        pass


def functional_and_sharded():
    from torch.distributed import _functional_collectives as functional
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    assert (functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD) == SIZE).all()
    mesh = init_device_mesh("cpu", (SIZE,))
    square = torch.arange(64.0).reshape(8, 8)
    rows, columns = distribute_tensor(square, mesh, [Shard(0)]), distribute_tensor(square, mesh, [Shard(1)])
    assert torch.equal((rows @ columns.redistribute(mesh, [Replicate()])).full_tensor(), square @ square)
    assert torch.equal(rows.redistribute(mesh, [Shard(1)]).full_tensor(), square)


def ops_of_a_group_by_its_methods():
    """Which take tensors as they are, too, and what options say by name or by place."""
    world, most, soon = dist.group.WORLD, dist.ReduceOp.MAX, timedelta(seconds=20)
    tensors = [of_rank(RANK + 1) for _ in range(6)]
    parts, gathered = ([torch.empty(3) for _ in range(SIZE)] for _ in range(2))
    scattered, (summed, largest) = torch.empty(3), torch.empty(2, 3)
    for work in (world.allreduce(tensors[0]), world.allreduce(tensors[1], most, soon), world.allreduce([tensors[2]], op=most),
                 world.broadcast(tensors[3], 2), world.broadcast(tensors[4], root=2, timeout=soon), world.reduce(tensors[5], 1, most),
                 world.allgather(parts, of_rank(RANK)), world.gather(gathered if RANK == 1 else [], of_rank(RANK), 1),
                 world.scatter(scattered, everybody() if RANK == 1 else [], 1), world.reduce_scatter(summed, everybody()),
                 world.reduce_scatter(largest, everybody(), most), world.barrier(soon), world.barrier(timeout=soon), world.barrier()):
        work.wait()
    assert [one[0].item() for one in tensors] == [TOTAL, SIZE, SIZE, 3, 3, SIZE if RANK == 1 else RANK + 1], tensors
    for got in (parts, *([gathered] if RANK == 1 else [])):
        assert all(torch.equal(*pair) for pair in zip(got, everybody(), strict=True)), got
    assert (scattered == RANK).all() and (summed == SIZE * RANK).all() and (largest == RANK).all()


def what_makes_no_sense_is_refused_in_words():
    uneven = torch.empty(3), torch.empty(2)
    uneven_of_one = [torch.empty(3 if RANK == i == 1 else 2) for i in range(SIZE)]  # and the others are not to wait for it
    beside_another = dist.new_group(backend="cpu:gradring,cuda:gloo")
    for call, words in ((lambda: dist.all_gather_into_tensor(*uneven), "needs 4 times 2 elements"),
                        (lambda: dist.broadcast(torch.eye(2).to_sparse(), 0), "sparse"),
                        (lambda: dist.all_reduce(torch.eye(2).to_sparse_csr()), "those of torch.sparse_coo; this one is torch.sparse_csr"),
                        (lambda: dist.all_to_all_single(torch.empty(3), torch.empty(3)), "split sizes"),
                        (lambda: dist.all_to_all([torch.empty(2)], [torch.empty(2)]), "4 outputs and 4 inputs, not 1 and 1"),
                        (lambda: dist.all_to_all(uneven_of_one, list(torch.empty(4, 2))), "they take [2, 3, 2, 2]"),
                        (lambda: dist.all_reduce(torch.eye(2).to_sparse(), dist.ReduceOp.AVG), "give it ReduceOp.SUM"),
                        (lambda: dist.all_reduce(torch.empty(2, device="meta")), "this one is on meta"),
                        (lambda: dist.all_reduce(torch.ones(1).expand(3)), "share memory"),
                        (lambda: dist.all_gather(list(torch.empty(SIZE, 2)), torch.empty(3)), "with 3 elements"),
                        (lambda: dist.barrier(group=beside_another), "its own"), (lambda: dist.recv(torch.empty(1)), "the rank")):
        try:
            call()
        except (ValueError, TypeError, NotImplementedError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"not refused: {words}")


CHECKS = [
    all_reduce_of_every_type, all_reduce_with_every_op, all_reduce_of_what_is_not_contiguous, what_has_the_other_sign_in_its_memory,
    parameters_that_are_not_contiguous, all_reduce_of_complex_numbers, complex_numbers_elsewhere, all_reduce_of_bools_and_of_nothing,
    all_reduce_of_sparse_tensors, many_at_once, futures, futures_that_end_in_another_order, broadcast_and_reduce, all_gather,
    of_unequal_sizes, reduce_scatter, gather_and_scatter, all_to_all, objects, one_to_one, groups, coalesced, coalesced_on_a_device,
    functional_and_sharded, ops_of_a_group_by_its_methods, what_makes_no_sense_is_refused_in_words,
]
for check in CHECKS:
    check()
    say(right=check.__name__)
dist.barrier()
dist.destroy_process_group()
