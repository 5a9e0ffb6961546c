"""Ops on tensors of a device, whose work is done later, checked against what they must give. Says which were right. Its words:
device_tensors.py."""

import os
import threading
import time

import torch
import torch.distributed as dist
from device_tensors import DEVICE, RANK, SIZE, TOTAL, WHICH, far, here, of_rank
from report import say
from stream_checks import HELD, LIKE_CUDA

import gradring.torch as hvd
from gradring._native import Wire
from gradring.torch import hooks


def reductions():
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        tensor = of_rank(RANK + 1, 1000, dtype)
        dist.all_reduce(tensor)
        assert (here(tensor) == TOTAL).all(), dtype
    tensor = of_rank(RANK + 1, dtype=torch.int32)
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
    assert here(tensor).tolist() == [2, 2, 2]
    turned = far(torch.arange(12.0).reshape(3, 4)).t()
    dist.all_reduce(turned)
    assert torch.equal(here(turned), torch.arange(12.0).reshape(3, 4).t() * SIZE)
    for root in range(SIZE):
        tensor = of_rank(RANK + 1)
        dist.reduce(tensor, root)
        assert (here(tensor) == (TOTAL if RANK == root else RANK + 1)).all()
    part = of_rank(0, 2)
    dist.reduce_scatter_tensor(part, far(torch.arange(2.0 * SIZE)))
    assert here(part).tolist() == [2.0 * RANK * SIZE, (2.0 * RANK + 1) * SIZE]


def sums_of_large_tensors():
    large = 3 << 20  # bytes; from 2 MiB on a daemon that has the GPUs sums on them
    for dtype in (torch.float32, torch.bfloat16):
        tensor = of_rank(RANK + 1, large // dtype.itemsize, dtype)
        for _ in range(3):
            dist.all_reduce(tensor)
        assert (here(tensor) == TOTAL * SIZE * SIZE).all(), dtype
    share, whole = of_rank(0, large // 4), of_rank(RANK + 1, SIZE * large // 4)
    dist.reduce_scatter_tensor(share, whole)
    assert (here(share) == TOTAL).all()
    dist.all_gather_into_tensor(whole, share)
    assert (here(whole) == TOTAL).all()


def moves():
    tensor = of_rank(RANK)
    dist.broadcast(tensor, 2)
    assert (here(tensor) == 2).all()
    parts = [of_rank(-1) for _ in range(SIZE)]
    dist.all_gather(parts, of_rank(RANK))
    assert [here(part)[0].item() for part in parts] == list(range(SIZE))
    sizes = [3, 0, 5, 1]
    parts = [of_rank(-1, size) for size in sizes]
    dist.all_gather(parts, of_rank(RANK, sizes[RANK]))
    assert [here(part).tolist() for part in parts] == [[rank] * size for rank, size in enumerate(sizes)]
    part = of_rank(-1, sizes[RANK])
    dist.reduce_scatter(part, [of_rank(rank, size) for rank, size in enumerate(sizes)])
    assert here(part).tolist() == [RANK * SIZE] * sizes[RANK]
    whole = of_rank(-1, 3 * SIZE)
    dist.all_gather_into_tensor(whole, of_rank(RANK))
    assert here(whole)[::3].tolist() == list(range(SIZE))
    got = of_rank(-1, SIZE)
    dist.all_to_all_single(got, far(torch.arange(float(SIZE)) + 10 * RANK))
    assert here(got).tolist() == [10 * rank + RANK for rank in range(SIZE)]
    parts = [of_rank(-1) for _ in range(SIZE)] if RANK == 1 else None
    dist.gather(of_rank(RANK), parts, dst=1)
    assert RANK != 1 or [here(part)[0].item() for part in parts] == list(range(SIZE))
    work = dist.isend(of_rank(RANK), (RANK + 1) % SIZE)
    got = of_rank(-1)
    dist.recv(got, (RANK - 1) % SIZE)
    work.wait()
    assert (here(got) == (RANK - 1) % SIZE).all()


def what_the_device_computes_before_is_awaited_and_the_caller_is_not():
    tensor, may_go_on = of_rank(0), threading.Event()
    DEVICE.default.launch(may_go_on.wait)
    DEVICE.default.launch(lambda: tensor.raw.fill_(RANK + 1))
    work = dist.all_reduce(tensor, async_op=True)
    assert not work.is_completed(), "the device has not come to it"
    try:
        work.wait(timeout=torch.distributed.timedelta(seconds=0.05))
        raise AssertionError("it came too early")
    except hvd.GradringError as error:
        assert "the device has not come to it yet" in str(error), error
    may_go_on.set()
    work.wait()
    assert (here(tensor) == TOTAL).all()
    tensor = of_rank(RANK + 1)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert (here(future.wait()[0]) == TOTAL).all()


def what_is_only_received_comes_behind_what_the_device_computes_before():
    """Else that would be written over it."""
    def got(begin):
        tensor, may_go_on = of_rank(0), threading.Event()
        DEVICE.default.launch(may_go_on.wait)
        DEVICE.default.launch(lambda: tensor.raw.fill_(-1))
        work = begin(tensor)
        time.sleep(0.05)
        assert not work.is_completed(), "the device has not come to it"
        may_go_on.set()
        work.wait()
        return here(tensor)
    if RANK == 0:
        dist.broadcast(of_rank(7), 0)
        dist.scatter(of_rank(0), [of_rank(rank) for rank in range(SIZE)], 0)
        for rank in range(1, SIZE):
            dist.send(of_rank(rank), rank)
    else:
        assert (got(lambda one: dist.broadcast(one, 0, async_op=True)) == 7).all()
        assert (got(lambda one: dist.scatter(one, None, 0, async_op=True)) == RANK).all()
        assert (got(lambda one: dist.irecv(one, 0)) == RANK).all()


def ops_of_the_host_do_not_overtake_those_that_wait_for_a_device():
    """One rank's device is late; the others' ops are matched with its by their order."""
    may_go_on = threading.Event()
    if RANK == 0:
        DEVICE.default.launch(may_go_on.wait)
    first, second, third = of_rank(RANK + 1), torch.full((3,), float(RANK)), torch.full((7,), RANK + 1.0)
    works = [dist.all_reduce(first, async_op=True), dist.broadcast(second, 1, async_op=True),
             dist.all_reduce(third, async_op=True)]
    may_go_on.set()
    for work in works:
        work.wait()
    assert (here(first) == TOTAL).all() and (second == 1).all() and (third == TOTAL).all()


def what_a_callback_computes_is_awaited():
    """On whatever thread it does, also where a future tells of what has ended."""
    os.environ["GRADRING_TORCH_BLOCKING_WAIT"] = "1"
    tensor = of_rank(RANK + 1)

    def double(told):
        DEVICE.current_stream().launch(lambda: time.sleep(0.1))
        DEVICE.current_stream().launch(lambda: tensor.raw.mul_(2))
        return told.value()
    with DEVICE.stream(DEVICE.Stream()):
        DEVICE.current_stream().launch(lambda: time.sleep(0.1))
        dist.all_reduce(tensor, async_op=True).get_future().then(double).wait()
        assert (here(tensor) == 2 * TOTAL).all()
    del os.environ["GRADRING_TORCH_BLOCKING_WAIT"]


def buckets_of_ddp():
    class Bucket:
        def __init__(self, numbers):
            self.numbers = numbers

        def buffer(self):
            return self.numbers
    for wire in (Wire.DEFAULT, Wire.BFLOAT16):
        bucket = Bucket(of_rank(RANK + 1, 1000))
        mean = hooks._mean(None, bucket, wire).wait()
        assert (here(mean) == TOTAL / SIZE).all()


def names_of_horovod():
    dist.destroy_process_group()
    hvd.init()
    tensor = of_rank(RANK + 1)
    assert (here(hvd.allreduce(tensor, op=hvd.Sum)) == TOTAL).all()
    assert (here(tensor) == RANK + 1).all()
    hvd.allreduce_(tensor, op=hvd.Average)
    assert (here(tensor) == TOTAL / SIZE).all()
    rows = here(hvd.allgather(far(torch.full((RANK + 1, 2), float(RANK)))))
    assert rows[:, 0].tolist() == [rank for rank in range(SIZE) for _ in range(rank + 1)]
    tensor = of_rank(RANK)
    hvd.broadcast_(tensor, 3)
    assert (here(tensor) == 3).all()
    got, counts = hvd.alltoall(far(torch.arange(float(SIZE)) + 10 * RANK), splits=torch.ones(SIZE, dtype=torch.int64))
    assert here(got).tolist() == [10 * rank + RANK for rank in range(SIZE)]
    assert (here(hvd.reducescatter(far(torch.ones(SIZE, 2)), op=hvd.Sum)) == SIZE).all()
    assert (here(hvd.allreduce(of_rank(RANK + 1), op=hvd.Adasum)) > 0).all()


def a_group_that_is_destroyed_keeps_nobody_waiting():
    may_go_on = threading.Event()
    dist_group = dist.new_group()
    DEVICE.default.launch(may_go_on.wait)
    first = dist.all_reduce(of_rank(1), group=dist_group, async_op=True)
    second = dist.all_reduce(of_rank(1), group=dist_group, async_op=True)
    dist.destroy_process_group(dist_group)
    may_go_on.set()
    failed = 0
    for work in (first, second):
        try:
            work.wait()
        except (RuntimeError, hvd.GradringError) as error:
            failed += 1
            assert "destroyed" in str(error) or "left" in str(error) or "closed" in str(error), error
    assert failed > 0


STAGED = (what_the_device_computes_before_is_awaited_and_the_caller_is_not,
          what_is_only_received_comes_behind_what_the_device_computes_before,
          ops_of_the_host_do_not_overtake_those_that_wait_for_a_device, what_a_callback_computes_is_awaited,
          a_group_that_is_destroyed_keeps_nobody_waiting)
OTHERS = {"staged": STAGED, "cuda": LIKE_CUDA, "cpu": ()}.get(WHICH, (*LIKE_CUDA, *HELD, what_a_callback_computes_is_awaited))
for check in (reductions, sums_of_large_tensors, moves, buckets_of_ddp, *OTHERS, names_of_horovod):
    check()
    say(right=check.__name__)
hvd.shutdown()
