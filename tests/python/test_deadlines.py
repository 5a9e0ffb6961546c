"""Waits of several parts, which share the time that they are given."""

import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import gradring
import pytest
from gradring import Code, GradringError
from gradring.deadline import FOR_EVER, LOOK, Deadline
from gradring.handles import RequestHandle, StagedHandle
from gradring.torch.ordered import OrderedWork
from gradring.torch.work import Together, Work

SECONDS = 0.5


class Slow:
    """A request that is done so many seconds after somebody began to wait for it."""

    def __init__(self, seconds=0.8 * SECONDS):
        self._seconds = seconds
        self._done_at = None
        self.began = threading.Event()

    def wait(self, milliseconds):
        self.began.set()
        self._done_at = self._done_at or time.monotonic() + self._seconds
        left = self._done_at - time.monotonic()
        time.sleep(max(min(left, milliseconds / 1000), 0))
        return left <= milliseconds / 1000

    def wait_on_stream(self, _, milliseconds):
        return self.wait(milliseconds)

    def progress(self):
        return "it is slow"


def slow():
    return [Slow() for _ in range(5)]


def handle():
    one = RequestHandle(slow(), lambda: "result")
    return lambda timeout: one.wait(timeout)


def work():
    return in_torch(Work("sum", slow(), [], lambda: None, 60))


def works():
    return in_torch(Together([Work("sum", [one], [], lambda: None, 60) for one in slow()]))


def work_of_a_device():
    stream = SimpleNamespace(cuda_stream=0, record_event=lambda: None)
    device = SimpleNamespace(current=lambda: stream)
    return in_torch(OrderedWork("sum", slow(), [SimpleNamespace(brings=8)] * 5, [], None, 60, device, stream))


def in_torch(one):
    return lambda timeout: one.wait(timedelta(seconds=timeout))


@pytest.mark.parametrize("made", [handle, work, works, work_of_a_device])
def test_parts_share_the_time(made):
    wait = made()
    with pytest.raises(GradringError, match=f"timeout after {SECONDS} s") as told:
        wait(SECONDS)
    assert told.value.code == Code.DEADLINE
    wait(60)  # nothing is lost


def test_who_waits_beside_another_thread_has_a_time_as_well():
    request = Slow(20 * SECONDS)
    one = RequestHandle([request], lambda: None)
    threading.Thread(target=one.wait, daemon=True).start()
    assert request.began.wait(60)
    began = time.monotonic()
    with pytest.raises(GradringError, match="timeout after"):
        one.wait(SECONDS)
    assert time.monotonic() - began < 10 * SECONDS


def test_a_look_takes_no_time_and_the_longest_time_fits():
    assert LOOK.milliseconds() == 0 and 0 < Deadline(0.0001).milliseconds() <= 1
    assert Deadline(timedelta.max.total_seconds()).seconds() <= FOR_EVER


@pytest.mark.parametrize("made", [lambda: RequestHandle([Slow()], lambda: True), lambda: StagedHandle(lambda: Slow().wait(60e3))])
def test_a_wait_may_have_more_time_than_the_system_knows(made):
    assert made().wait(float("inf"))


@pytest.mark.parametrize("nonsense", [float("nan"), -1, "5", object()])
def test_what_is_no_time_is_refused_in_words(nonsense):
    kind = ValueError if hasattr(nonsense, "__float__") else TypeError
    for wait in (RequestHandle([slow()], lambda: None).wait, StagedHandle(lambda: None).wait):
        with pytest.raises(kind, match=r"gradring: wait\(.*\): it takes seconds, "):
            wait(nonsense)
    with pytest.raises(kind, match=r"gradring: init\(timeout=.*\): it takes seconds, "):
        gradring.init(timeout=nonsense)
