"""A rank of Horovod with PyTorch: horovod_torch.py LIBRARY BOARD BYTES"""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import horovod.torch as hvd  # noqa: E402
import torch  # noqa: E402
from serve import serve  # noqa: E402


def main():
    torch.set_num_threads(1)
    hvd.init()
    # By name, so that the second time and later it finds the tensor in its cache.
    status = serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), hvd.rank(),
                   lambda tensor: hvd.allreduce_(tensor, op=hvd.Sum, name=f"gradients of {tensor.numel()}"))
    hvd.shutdown()
    return status


if __name__ == "__main__":
    sys.exit(main())
