"""The default group is made, taken down and made again, as a notebook would; then a script ends without a word."""

import sys

import torch
import torch.distributed as dist
from meet import meet
from report import say

for life in range(3):
    sys.argv[1] += "x"
    rank, size = meet()
    side = dist.new_group(list(range(size)))
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=side)
    dist.all_reduce(tensor)
    say(life=life, total=tensor[0].item())
    if life < 2:
        world = dist.group.WORLD
        dist.destroy_process_group()
        assert not world.is_open and not side.is_open, "it keeps its job"
work = dist.all_reduce(torch.ones(1000), async_op=True)
future = work.get_future()
del work
future.wait()
torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)  # as nearly every script has one: what it loads holds on to groups
