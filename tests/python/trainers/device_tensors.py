"""Tensors of the device that a trainer's second word names, by ranks that have met. STORE DEVICE [pool]

DEVICE is "staged": one whose work the host has to wait for. The path of the tests' driver: one whose streams wait for ops by
themselves. "cuda": a GPU. With "pool" behind either, its memory is the library's. "cpu": none, but the host itself.
"""

import contextlib
import os
import sys

import torch
from meet import meet

import gradring.torch as hvd
from gradring.torch import devices

WHICH = sys.argv[2] if len(sys.argv) > 2 else "staged"
if WHICH in ("cuda", "cpu"):
    DEVICE = None
    POOL = hvd.mem_pool() if "pool" in sys.argv else None

    def far(tensor):
        with torch.cuda.use_mem_pool(POOL) if POOL is not None else contextlib.nullcontext():
            return tensor.to(WHICH, copy=True)
else:
    from far_device import DEVICE, Future, far  # which not every PyTorch can make

    if WHICH != "staged":
        import twin_device

        if "pool" in sys.argv:
            os.environ["GRADRING_GPU_STAGE_MIB"] = "0"  # what lies there needs no other memory of a GPU
        twin_device.use(WHICH, pool="pool" in sys.argv)
    # Pinned memory is a GPU's, and so are futures that know it.
    devices.Accelerator.host = lambda self, tensor: torch.empty(tensor.shape, dtype=tensor.dtype)
    devices.Accelerator.future = lambda self: Future()
    if WHICH != "staged":
        devices.Ordered.future = lambda self: Future()

RANK, SIZE = meet()
TOTAL = SIZE * (SIZE + 1) // 2


def here(tensor):
    assert tensor.device.type == WHICH or tensor.device.type == "far", tensor.device
    return tensor.to("cpu")


def of_rank(rank, count=3, dtype=torch.float32):
    return far(torch.full((count,), rank, dtype=dtype))
