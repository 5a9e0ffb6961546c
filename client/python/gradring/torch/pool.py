"""PyTorch's tensors in memory of NVIDIA's GPUs that the daemon opens where it is."""

from __future__ import annotations

import contextlib
import functools
import threading

import torch

from .. import _native


def mem_pool() -> torch.cuda.MemPool:
    """A torch.cuda.MemPool for what is allocated `with torch.cuda.use_mem_pool(pool)`.

    Beside a daemon that sums on GPUs, ops on such tensors need no copy within the GPU; ops are as they are elsewhere
    otherwise. Raises RuntimeError where this PyTorch has no GPU of NVIDIA's.
    """
    if torch.version.cuda is None or not torch.cuda.is_available():
        raise RuntimeError("gradring: mem_pool() is of memory of NVIDIA's GPUs, and this PyTorch "
                           + ("was built without CUDA" if torch.version.cuda is None else "finds no such GPU"))
    return torch.cuda.MemPool(_allocator().allocator())


@functools.cache  # for good: not every PyTorch has a pool keep it alive
def _allocator():
    # The names are those of libgradring, which the module has been loaded with.
    return torch.cuda.memory.CUDAPluggableAllocator(_native.__file__, "gradring_torch_alloc", "gradring_torch_free")


def keep_buckets_in(pool: torch.cuda.MemPool, model: torch.nn.parallel.DistributedDataParallel) -> None:
    """Has the buckets that DistributedDataParallel makes anew lie in `pool`, as those that it was made with.

    It does so once, at the beginning of the forward pass after the first backward pass. Call this before that, and have
    the pool in no use of your own in forward passes until then.
    """
    inside = contextlib.ExitStack()
    device = next(model.parameters()).device

    # What the model computes with is not for the pool: it is left where the wrapped module begins.
    def enter(*_):
        inside.close()
        inside.enter_context(torch.cuda.use_mem_pool(pool, device))

    def leave(*_):
        inside.close()

    def end(*_):
        inside.close()
        if getattr(model, "_has_rebuilt_buckets", False):
            for hook in hooks:
                hook.remove()
    hooks = [model.register_forward_pre_hook(enter), model.module.register_forward_pre_hook(leave, prepend=True),
             model.register_forward_hook(end, always_call=True)]


class Allocations:
    """What PyTorch asks the backend of a group for, of any device: whose it is, and memory of a GPU for FSDP's gathers and
    scatters."""

    supports_coalescing = supports_splitting = supports_time_estimate = False
    _pool: torch.cuda.MemPool | None = None  # of the process
    _lock = threading.Lock()

    def name(self):
        return "gradring"

    def supports_tensor_alloc(self, device):
        return torch.device(device).type == "cuda" and torch.version.cuda is not None and torch.cuda.is_available()

    def allocate_tensor(self, size, *, dtype, device):
        with Allocations._lock:
            if Allocations._pool is None:
                Allocations._pool = mem_pool()
            # One thread at a time: of a device nobody else may have the same pool in use.
            with torch.cuda.use_mem_pool(Allocations._pool, device):
                return torch.empty(size, dtype=dtype, device=device)
