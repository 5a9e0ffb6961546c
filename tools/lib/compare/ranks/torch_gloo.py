"""A rank of torch.distributed with gloo: torch_gloo.py LIBRARY BOARD BYTES"""

import ctypes
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

BUFFER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
ALLREDUCE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)


class Peer(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p), ("rank", ctypes.c_uint32), ("buffers", ctypes.c_uint32),
                ("most", ctypes.c_uint64), ("buffer", BUFFER), ("allreduce", ALLREDUCE)]


def main():
    library, board, most = ctypes.CDLL(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    gradients = torch.zeros(most // 4)
    parts = {}

    def allreduce(_context, size):
        if size not in parts:
            parts[size] = gradients[:size // 4]
        dist.all_reduce(parts[size])

    allreduce(None, 4)  # connects
    peer = Peer(None, dist.get_rank(), 1, most, BUFFER(lambda _context, _index: gradients.data_ptr()),
                ALLREDUCE(allreduce))
    status = library.bench_serve(board.encode(), ctypes.byref(peer))
    dist.destroy_process_group()
    return status


if __name__ == "__main__":
    sys.exit(main())
