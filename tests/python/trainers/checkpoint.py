"""A distributed checkpoint: written by all ranks, and read again."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from meet import meet
from report import say

meet()
torch.manual_seed(1)
saved = torch.nn.Linear(30, 30)
checkpoint.save({"model": saved.state_dict()}, checkpoint_id=sys.argv[1] + ".checkpoint")
torch.manual_seed(2)
read = {"model": torch.nn.Linear(30, 30).state_dict()}
checkpoint.load(read, checkpoint_id=sys.argv[1] + ".checkpoint")
say(same=all(torch.equal(read["model"][name], value) for name, value in saved.state_dict().items()))
dist.destroy_process_group()
