"""Memory of GPUs for PyTorch's tensors, as far as it needs no GPU; test_devices.py has ops on it."""

import contextlib
import ctypes
import logging
import threading
import time
import types

import pytest
import torch
import torch.distributed as dist

import gradring.torch
from gradring import _native
from gradring.torch import pool as pools

needs_none = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
ON_GPU = torch.device("cuda", 0)


@needs_none
def test_there_is_no_pool_where_there_is_no_gpu():
    with pytest.raises(RuntimeError, match="mem_pool.. is of memory of NVIDIA's GPUs, and this PyTorch"):
        gradring.torch.mem_pool()


@needs_none
def test_what_pytorch_looks_up_is_found_and_says_that_there_is_none():
    library = ctypes.CDLL(_native.__file__)
    library.gradring_torch_alloc.restype = ctypes.c_void_p
    library.gradring_last_error.restype = ctypes.c_char_p
    assert library.gradring_torch_alloc(ctypes.c_ssize_t(1 << 20), 0, None) is None
    assert b"libcuda.so.1" in library.gradring_last_error()
    library.gradring_torch_free(None, ctypes.c_ssize_t(1 << 20), 0, None)


class FakeCuda:
    """What of torch.cuda a pool needs, and which was in use when."""

    def __init__(self, monkeypatch):
        self.made = []
        self.inside = None
        monkeypatch.setattr(torch.version, "cuda", "12.8")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "MemPool", self.make)
        monkeypatch.setattr(torch.cuda, "use_mem_pool", self.use)
        monkeypatch.setattr(torch.cuda.memory, "CUDAPluggableAllocator", self.allocator)
        pools._allocator.cache_clear()
        monkeypatch.setattr(pools.Allocations, "_pool", None)

    def allocator(self, *words):
        return types.SimpleNamespace(allocator=lambda: words)

    def make(self, allocator):
        self.made.append(allocator)
        return f"pool {len(self.made)}"

    @contextlib.contextmanager
    def use(self, pool, device=None):
        assert self.inside is None, "one at a time"
        self.inside = (pool, device)
        yield
        self.inside = None


@pytest.fixture
def cuda(monkeypatch):
    yield FakeCuda(monkeypatch)
    pools._allocator.cache_clear()


def test_a_pool_is_of_the_librarys_memory(cuda):
    assert [gradring.torch.mem_pool(), gradring.torch.mem_pool()] == ["pool 1", "pool 2"]
    assert cuda.made == [(_native.__file__, "gradring_torch_alloc", "gradring_torch_free")] * 2


def test_a_group_has_memory_for_fsdp(cuda, monkeypatch):
    seen = []
    monkeypatch.setattr(torch, "empty", lambda *size, **details: seen.append((cuda.inside, size, details)))
    backend = pools.Allocations()
    group = types.SimpleNamespace(_allocations=backend)
    assert gradring.torch.ProcessGroup._get_backend(group, ON_GPU) is backend
    assert backend.supports_tensor_alloc(ON_GPU)
    for size in (3, 4):
        backend.allocate_tensor(size, dtype=torch.float32, device=ON_GPU)
    details = {"dtype": torch.float32, "device": ON_GPU}
    assert seen == [(("pool 1", ON_GPU), (size,), details) for size in (3, 4)]


def test_threads_of_autograd_have_the_pool_one_after_the_other(cuda, monkeypatch):
    monkeypatch.setattr(torch, "empty", lambda *size, **details: time.sleep(0.1))
    backend, failed = pools.Allocations(), []

    def allocate():
        try:
            backend.allocate_tensor(3, dtype=torch.float32, device=ON_GPU)
        except AssertionError as error:
            failed.append(error)
    threads = [threading.Thread(target=allocate) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.fixture
def model():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)))
    dist.destroy_process_group()


def test_buckets_that_ddp_makes_anew_are_in_the_pool(cuda, model):
    events = []
    handler = logging.Handler()
    handler.emit = lambda record: "rebuilt" in record.getMessage() and events.append(("rebuilt", cuda.inside))
    log = logging.getLogger("torch.nn.parallel.distributed")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    model.module[0].register_forward_pre_hook(lambda *_: events.append(("computes", cuda.inside)))
    gradring.torch.keep_buckets_in("pool", model)
    with pytest.raises(TypeError):
        model("no tensor")
    assert cuda.inside is None
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        assert cuda.inside is None
    inside = ("rebuilt", ("pool", torch.device("cpu")))
    assert [one for one in events if one[0] == "rebuilt"] == [inside]
    assert {one for one in events if one[0] == "computes"} == {("computes", None)}
    assert not model._forward_pre_hooks, "once is enough"
    log.removeHandler(handler)
