"""A rank of torch.distributed with gloo: torch_gloo.py LIBRARY BOARD BYTES"""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from serve import serve  # noqa: E402


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    status = serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), dist.get_rank(), dist.all_reduce)
    dist.destroy_process_group()
    return status


if __name__ == "__main__":
    sys.exit(main())
