"""Tensors on devices go by way of the host. The devices are ones that tests make themselves: no GPU is needed."""

import subprocess
import sys
import types

import pytest
import torch
from torch.utils import backend_registration

from gradring.torch import devices, ordered, sparse, staging


makes_devices = pytest.mark.skipif(not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
                                   reason="this PyTorch makes no devices in Python; 2.13 does")


@makes_devices
def test_ops_on_tensors_of_a_device(ring):
    for said in ring.run("devices"):
        assert len(said) == 10


@makes_devices
def test_ops_on_tensors_of_a_device_whose_streams_wait_for_them(ring, driver):
    for said in ring.run("devices", driver, fresh=True):
        assert len(said) == 19


@makes_devices
def test_large_sums_of_tensors_are_made_on_the_gpus_where_the_daemon_has_them(ring_with_gpus, driver):
    for said in ring_with_gpus.run("devices", driver, fresh=True):
        assert len(said) == 19
    for node in ring_with_gpus.nodes:
        counted = node.ask("status")["counters"]
        assert counted["gpu_input_bytes"] == 2 * counted["gpu_sum_bytes"] > 0, "of two ranks, of which one sum went on"
        assert counted["gpu_result_bytes"] == counted["gpu_sum_bytes"], "what is scattered comes back gathered"


@makes_devices
def test_sums_of_tensors_in_the_librarys_memory_need_no_other_memory_of_a_gpu(ring_with_gpus, driver):
    for said in ring_with_gpus.run("devices", driver, "pool", fresh=True):
        assert len(said) == 19
    for node in ring_with_gpus.nodes:
        counted = node.ask("status")["counters"]
        assert counted["gpu_input_bytes"] == 2 * counted["gpu_sum_bytes"] > 0, "of two ranks, of which one sum went on"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here, or PyTorch is built without CUDA")
def test_ops_on_tensors_of_a_gpu(ring):
    for said in ring.run("devices", "cuda", fresh=True):
        assert len(said) == 9


def test_waits_do_not_block_where_they_are_told_not_to(monkeypatch):
    for text, block in (("1", True), ("true", True), ("", False), ("0", False), ("false", False), ("Off", False)):
        monkeypatch.setenv("GRADRING_TORCH_BLOCKING_WAIT", text)
        assert ordered.waits_block() == block, text


def test_a_process_may_end_while_a_thread_lets_go_of_works():
    """PyTorch lets go of the interpreter's lock there, and nobody gets that back when there is no interpreter any more."""
    script = """if True:
        import torch
        from gradring.torch.work import Finisher

        def let_go(works):
            works.popleft()
            torch.ones(1 << 24).add_(1)
        finisher = Finisher("test", let_go)
        for number in range(1000):  # more than it is waited for
            finisher.add(number)
        ballast = [[i] for i in range(2_000_000)]  # so that the interpreter takes its time to end
    """
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0


def test_what_comes_to_a_group_as_it_is_destroyed_fails():
    stage = staging.Stage()
    told = []
    stage.add([], lambda: told.append("submitted"), told.append)
    stage.wait_until_idle()
    stage.close()
    stage.add([], lambda: told.append("submitted"), told.append)
    assert told[0] == "submitted" and "was destroyed" in str(told[1])
    assert not stage.busy()


def test_streams_are_made_when_they_are_needed(monkeypatch):
    made = []
    module = types.SimpleNamespace(Stream=lambda device, priority=0: made.append(priority) or device)
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    device = devices.Ordered(torch.device("cuda", 1))
    assert not made
    assert device.stream() == device._out == device._out == torch.device("cuda", 1)
    assert made == [-1, 0], "results are not to come by a stream that a trainer has as well"


def test_a_sparse_sum_is_there_when_its_end_is_told(monkeypatch):
    """Whichever thread, and thus stream, has written it."""
    waited = []
    device = types.SimpleNamespace(mark=lambda: "what this thread has begun", wait_for=waited.append)
    monkeypatch.setattr(sparse, "device_of", lambda tensor: device, raising=False)

    class Alone:
        @staticmethod
        def exchange(numbers):
            return numbers

        @staticmethod
        def start(what, moves, outputs, finish):
            for move in moves:
                move.taken.dense.copy_(move.given.dense)
            finish()
    tensor = torch.eye(3).to_sparse().requires_grad_()
    sparse.allreduce_sparse(Alone, tensor, torch.distributed.AllreduceOptions())
    assert torch.equal(tensor.to_dense(), torch.eye(3)) and waited == ["what this thread has begun"]
