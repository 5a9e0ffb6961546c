"""Whether NCCL takes these two ranks on one GPU: a sum of theirs, or its words."""

import os

import torch
import torch.distributed as dist
from side import DEVICE, RANK, SIZE, end, group, meet, say

meet()
version = words = ""
try:
    version = ".".join(map(str, torch.cuda.nccl.version()))
    tensor = torch.full((1000,), RANK + 1.0, device=DEVICE)
    dist.all_reduce(tensor, group=group("nccl"))
    assert (tensor == SIZE * (SIZE + 1) / 2).all()
except (RuntimeError, ValueError, ImportError, AttributeError) as error:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    words = lines[-1] if lines else type(error).__name__
say(version=version, words=words)
if words:
    os._exit(0)  # a group that failed may wait for ever at its end
end()
