"""gradring._native by itself: shared memory, requests, errors."""

import functools
import gc
import os
import pickle
import signal
import sys

import numpy
from report import say

import gradring
from gradring import _native
from gradring._native import Call, Collective, Dtype

job = _native.open()
RANK, SIZE = job.rank, job.size
TOTAL = SIZE * (SIZE + 1) // 2
COUNT = 100_000


def call_on(array, **details):
    return Call(Collective.ALLREDUCE, dtype=Dtype.FLOAT32, count=array.size, input=array.ctypes.data,
                input_bytes=array.nbytes, output=array.ctypes.data, output_bytes=array.nbytes, **details)


def call_between(one, other):
    return Call(Collective.ALLREDUCE, dtype=Dtype.FLOAT32, count=one.size, input=one.ctypes.data, input_bytes=one.nbytes,
                output=other.ctypes.data, output_bytes=other.nbytes)


def the_view_and_the_place_are_told():
    assert (RANK, SIZE) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    assert job.view()["ranks"] == list(range(SIZE)) and job.node in ("n0", "n1") and job.local_size == 2


def shared_memory_is_summed_where_it_lies():
    memory = job.allocate(4 * COUNT)
    array = numpy.frombuffer(memory, numpy.float32)
    assert array.ctypes.data == memory.address and memory.address % 4096 == 0 and array.flags.writeable
    array[:] = RANK + 1
    request = job.start(call_on(array))
    assert request.wait()
    assert (array == TOTAL).all() and request.result.ranks_min == SIZE and not request.result.shrunk


def ordinary_memory_is_written_when_it_is_waited_for():
    array = numpy.full(COUNT, RANK + 1, numpy.float32)
    request = job.start(call_on(array), array)
    assert (array == RANK + 1).all()
    while not request.wait(1000):
        pass
    assert (array == TOTAL).all() and request.wait(0), "as often as one likes"


def memory_is_used_again():
    first = job.allocate(4 * COUNT)
    address = first.address
    del first
    assert job.allocate(4 * COUNT - 8).address == address


def small_blocks_lie_apart_and_share_segments():
    """More of them than a trainer may have segments, of all sizes, each with an input and an output of its own."""
    sizes = [1 + 97 * i % 3000 if i % 50 else 16384 for i in range(1500)]
    inputs = [numpy.full(size, RANK + i, numpy.float32) for i, size in enumerate(sizes)]
    outputs = [numpy.empty_like(one) for one in inputs]
    requests = [job.start(call_between(one, other), other) for one, other in zip(inputs, outputs)]
    assert all(request.wait() for request in requests)
    assert all((one == SIZE * i + TOTAL - SIZE).all() for i, one in enumerate(outputs))


def large_blocks_share_segments_too():
    blocks = [job.allocate(size) for _ in range(1100) for size in (70_000, 300_000)]
    ranges = sorted((block.address, block.nbytes) for block in blocks)
    assert all(at + size <= after for (at, size), (after, _) in zip(ranges, ranges[1:]))
    assert all(at % 4096 == 0 for at, _ in ranges)
    del blocks
    one = job.allocate(70_000)
    assert job.allocate(70_000).address != one.address


def what_lies_idle_keeps_nobody_from_segments():
    for size in (70_000, 80_000):
        blocks = [job.allocate_pages(size) for _ in range(600)]
        assert len({block.address for block in blocks}) == 600
        del blocks


def what_is_dropped_disturbs_nobody():
    for _ in range(20):
        job.start(call_on(numpy.full(COUNT, RANK + 1, numpy.float32)))
    gc.collect()
    array = numpy.full(COUNT, RANK + 1, numpy.float32)
    assert job.start(call_on(array), array).wait()
    assert (array == TOTAL).all()


def all_or_none_are_submitted():
    arrays = [numpy.full(10 + i, RANK + 1, numpy.float32) for i in range(5)]
    for request in job.start_all([call_on(array) for array in arrays], arrays):
        assert request.wait()
    assert all((array == TOTAL).all() for array in arrays)
    bad = Call(Collective.ALLREDUCE, dtype=Dtype.FLOAT8_E4M3, count=4, input=arrays[0].ctypes.data, input_bytes=4,
               output=arrays[0].ctypes.data, output_bytes=4)
    try:
        job.start_all([call_on(arrays[0]), bad], arrays)
    except gradring.GradringError as error:
        assert error.code == gradring.Code.INVALID and error.rank is None, error
    else:
        raise AssertionError("a sum of float8 was taken")


def errors_can_be_sent_to_other_processes():
    error = gradring.GradringError("words", 7, 2, 3, "n1", 4711)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code, again.cause, again.rank, again.node, again.pid) == (
        "words", gradring.Code.FAILED, gradring.Cause.TRAINER_DIED, 3, "n1", 4711)


def a_mismatch_names_both():
    array = numpy.zeros(10 + (RANK == 1), numpy.float32)
    try:
        job.start(call_on(array, name="uneven"), array).wait()
    except gradring.GradringError as error:
        assert error.cause == gradring.Cause.MISMATCH and "10" in str(error) and "11" in str(error), error
    else:
        raise AssertionError("10 and 11 elements were summed")


def what_a_signal_handler_raises_comes_through_while_an_error_is_made():
    class Preempted(BaseException):
        pass

    def preempt(_number, _frame):
        raise Preempted

    before = signal.signal(signal.SIGALRM, preempt)
    bad = Call(Collective.ALLREDUCE, dtype=Dtype.FLOAT8_E4M3, count=4)
    # The signal comes during the sum, and between the two no line of Python runs that would see it.
    both = [functools.partial(sum, range(20_000_000)), functools.partial(job.start, bad)]
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        list(map(functools.partial.__call__, both))
    except Preempted:
        pass
    else:
        raise AssertionError("the handler did not run")
    finally:
        signal.signal(signal.SIGALRM, before)


def threads_of_the_binding_count_no_references():
    """They may end while the interpreter does, when nobody may count any more."""
    before = sys.getrefcount(job)
    for _ in range(300):
        job.join_point()
        assert sys.getrefcount(job) == before


for check in (the_view_and_the_place_are_told, shared_memory_is_summed_where_it_lies,
              ordinary_memory_is_written_when_it_is_waited_for, memory_is_used_again,
              small_blocks_lie_apart_and_share_segments, large_blocks_share_segments_too, what_lies_idle_keeps_nobody_from_segments,
              what_is_dropped_disturbs_nobody, all_or_none_are_submitted, errors_can_be_sent_to_other_processes,
              a_mismatch_names_both, what_a_signal_handler_raises_comes_through_while_an_error_is_made,
              threads_of_the_binding_count_no_references):
    check()
    say(right=check.__name__)
