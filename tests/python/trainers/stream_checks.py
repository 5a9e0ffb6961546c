"""What is asked of a device whose streams wait for ops by themselves, and may be held where it is the tests' own."""

import gc
import os
import threading
import time
import weakref

import torch
import torch.distributed as dist
from device_tensors import DEVICE, RANK, SIZE, TOTAL, here, of_rank

import gradring.torch as hvd
from gradring._native import Cause
from gradring.torch import devices

def nobody_waits_for_the_device():
    tensor = of_rank(0)
    DEVICE.default.hold(True)
    DEVICE.default.launch(lambda: tensor.raw.fill_(RANK + 1))
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait()  # the stream waits, and nobody else
    DEVICE.default.launch(lambda: tensor.raw.mul_(10))
    other = dist.all_reduce(tensor, async_op=True)
    future = other.get_future()
    assert future.done() and not work.is_completed() and not other.is_completed()
    DEVICE.default.hold(False)
    other.wait()
    assert (here(tensor) == 10 * SIZE * TOTAL).all()
    while not (work.is_completed() and other.is_completed()):
        pass  # the word that a stream waits for comes a little before the end
    assert work.is_success() and other.is_success()
    assert future.value()[0] is tensor


def who_waits_for_what_is_small_brings_it():
    own, _ = dist.group.WORLD._ways[devices.device_of(of_rank(0))]
    own.hold(True)
    tensor = of_rank(RANK + 1)
    dist.all_reduce(tensor)
    assert (here(tensor) == TOTAL).all()
    own.hold(False)


def who_waits_later_comes_behind_who_brings_the_result():
    """Also when nobody knows of the op any more."""
    tensor, bringing, seen = of_rank(RANK + 1), DEVICE.Stream(), []
    work = dist.all_reduce(tensor, async_op=True)
    bringing.hold(True)
    with DEVICE.stream(bringing):
        work.wait()
    while work._moves:
        pass
    with DEVICE.stream(DEVICE.Stream()):
        work.wait()
        DEVICE.current_stream().launch(lambda: seen.append(tensor.raw[0].item()))
        time.sleep(0.05)
        assert not seen and not work.is_completed()
        bringing.hold(False)
        DEVICE.current_stream().finish()
    assert seen == [TOTAL] and work.is_completed()


def tensors_are_let_go_of_with_their_op():
    """Not only when somebody collects garbage: it is memory of a GPU."""
    gc.disable()
    tensor = of_rank(RANK + 1, 1000)
    left = weakref.ref(tensor)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    del tensor, work
    until = time.monotonic() + 10
    while left() is not None:
        assert time.monotonic() < until, "somebody has it"
        time.sleep(0.001)
    gc.enable()


def tensors_are_kept_until_the_result_is_there_whichever_comes_first():
    """What is small is put on the group's own stream when its future is asked for, behind what is large and began later."""
    own, _ = dist.group.WORLD._ways[devices.device_of(of_rank(0))]
    small, large = of_rank(RANK + 1), of_rank(RANK + 1, 100_000)
    DEVICE.default.hold(True)
    work = dist.all_reduce(small, async_op=True)
    with DEVICE.stream(DEVICE.Stream()):
        larger = dist.all_reduce(large, async_op=True)
    future = work.get_future()
    while not larger.is_completed():
        pass
    own.hold(True)
    DEVICE.default.hold(False)
    time.sleep(0.1)
    assert work._moves, "it is still to be copied"
    own.hold(False)
    assert (here(future.wait()[0]) == TOTAL).all() and (here(large) == TOTAL).all()
    while work._moves:
        pass


def results_find_their_way_without_anybody():
    """Also where they need to be spread, and nobody asks."""
    parts = [of_rank(-1) for _ in range(SIZE)]
    work = dist.all_gather(parts, of_rank(RANK), async_op=True)
    while not work.is_completed():
        pass
    assert [part.raw[0].item() for part in parts] == list(range(SIZE))


def what_others_capture_into_graphs_is_left_whole():
    from twin_device import captured

    with captured():
        tensor = of_rank(RANK + 1)
        work = dist.all_reduce(tensor, async_op=True)
        while not work.is_completed():
            pass
        work.wait()
        while work._moves:
            pass  # the thread that watches works has not let go of it yet
    assert (here(tensor) == TOTAL).all()


def what_comes_from_a_rank_does_not_keep_others_waiting():
    """The receive is last to be served, and first to be asked for."""
    got, tensor = of_rank(-1), of_rank(RANK + 1)
    if RANK == 0:
        late = dist.irecv(got, 1)
        dist.all_reduce(tensor)
        dist.all_reduce(tensor)
        late.wait()
        assert (here(got) == 7).all()
    else:
        dist.all_reduce(tensor)
        dist.all_reduce(tensor)
        here(tensor)
        if RANK == 1:
            dist.isend(of_rank(7), 0).wait()
    assert (here(tensor) == TOTAL * SIZE).all()


def an_error_is_told_by_whatever_comes_next():
    group = dist.new_group()

    def fails():
        return dist.all_reduce(of_rank(1, 3 if RANK == 0 else 4), group=group, async_op=True)

    def tells(call):
        try:
            call()
        except hvd.GradringError as error:
            assert error.cause == Cause.MISMATCH, error
            return True
        return False
    work = fails()
    told = tells(work.wait)  # which may know by now
    while not work.is_completed():
        pass
    assert told or tells(work.wait)
    unheard = fails()  # of which nobody asks
    while unheard not in group._unheard._works.copy():
        pass
    assert tells(lambda: dist.all_reduce(of_rank(1), group=group))
    tensor = of_rank(RANK + 1)
    dist.all_reduce(tensor, group=group)  # once is enough
    assert (here(tensor) == TOTAL).all(), "and no stream waits for ever"


def an_error_is_heard_of_while_others_wait_for_a_rank():
    """Both ways, for what that rank does last."""
    group = dist.new_group()
    got = of_rank(-1)
    if RANK == 0:
        late = [dist.irecv(got, 1, group=group), dist.isend(of_rank(6), 1, group=group)]
    fails = dist.all_reduce(of_rank(1, 3 if RANK == 0 else 4), group=group, async_op=True)
    until = time.monotonic() + 10
    while fails not in group._unheard._works.copy():
        assert time.monotonic() < until, "nobody looks"
        time.sleep(0.001)
    dist.barrier()
    group._unheard._works.clear()
    if RANK == 1:
        dist.isend(of_rank(7), 0, group=group).wait()
        dist.irecv(got, 0, group=group).wait()
        assert (here(got) == 6).all()
    if RANK == 0:
        for one in late:
            one.wait()
        assert (here(got) == 7).all()


def streams_go_on_when_a_group_is_left():
    group = dist.new_group()
    if RANK == 0:
        tensor, got = of_rank(1), of_rank(1)
        works = [dist.all_reduce(tensor, group=group, async_op=True), dist.irecv(got, 1, group=group)]
        for work in works:
            work.wait()
        group.abort()
        here(tensor), here(got)
        for work in works:
            try:
                work.wait()
                raise AssertionError("the others never came")
            except hvd.GradringError as error:
                assert error.cause == Cause.TRAINER_LEFT and error.rank == 0, error
    dist.barrier()


def a_wait_can_be_made_to_block():
    os.environ["GRADRING_TORCH_BLOCKING_WAIT"] = "1"
    tensor = of_rank(RANK + 1)
    DEVICE.default.hold(True)
    work = dist.all_reduce(tensor, async_op=True)
    try:
        work.wait(timeout=torch.distributed.timedelta(seconds=0.05))
        raise AssertionError("it came too early")
    except hvd.GradringError as error:
        assert "waits for this rank's own stream" in str(error), error
    DEVICE.default.hold(False)
    work.wait()
    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert (here(future.wait()[0]) == SIZE * TOTAL).all()
    del os.environ["GRADRING_TORCH_BLOCKING_WAIT"]


def who_has_heard_of_an_error_is_not_told_again():
    os.environ["GRADRING_TORCH_BLOCKING_WAIT"] = "1"
    group = dist.new_group()
    work = dist.all_reduce(of_rank(1, 3 if RANK == 0 else 4), group=group, async_op=True)
    try:
        work.wait()
        raise AssertionError("of different lengths")
    except hvd.GradringError as error:
        assert error.cause == Cause.MISMATCH, error
    while work not in group._unheard._works.copy():
        pass
    dist.all_reduce(of_rank(1), group=group)
    del os.environ["GRADRING_TORCH_BLOCKING_WAIT"]


LIKE_CUDA = (what_comes_from_a_rank_does_not_keep_others_waiting, an_error_is_told_by_whatever_comes_next,
             an_error_is_heard_of_while_others_wait_for_a_rank, streams_go_on_when_a_group_is_left)
HELD = (nobody_waits_for_the_device, who_waits_for_what_is_small_brings_it, who_waits_later_comes_behind_who_brings_the_result,
        tensors_are_let_go_of_with_their_op, tensors_are_kept_until_the_result_is_there_whichever_comes_first,
        results_find_their_way_without_anybody, a_wait_can_be_made_to_block, what_others_capture_into_graphs_is_left_whole,
        who_has_heard_of_an_error_is_not_told_again)
