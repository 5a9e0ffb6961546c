"""One sum, in a job that a launcher of torch starts, or this script's own `spawn NODE URL`."""

import sys

import torch
import torch.distributed as dist
import torch.multiprocessing

import gradring.torch  # noqa: F401
from report import say


def main(local_rank=0, node=0, url=None):
    if url is None:
        dist.init_process_group("gradring")
    else:
        dist.init_process_group("gradring", init_method=url, world_size=4, rank=2 * node + local_rank)
    tensor = torch.full((5,), dist.get_rank() + 1.0)
    dist.all_reduce(tensor)
    say(total=tensor[0].item())
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] == ["spawn"]:
        torch.multiprocessing.spawn(main, (int(sys.argv[2]), sys.argv[3]), nprocs=2)
    else:
        main()
