"""What ranks in Python share: a tensor that is summed again and again, on orders from the board."""

import ctypes

import torch

BUFFER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
ALLREDUCE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)


class Peer(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p), ("rank", ctypes.c_uint32), ("buffers", ctypes.c_uint32),
                ("most", ctypes.c_uint64), ("buffer", BUFFER), ("allreduce", ALLREDUCE)]


def serve(library, board, most, rank, reduce):
    """`reduce(tensor)`: in place, over all ranks."""
    gradients = torch.zeros(most // 4)
    parts = {}

    def allreduce(_context, size):
        if size not in parts:
            parts[size] = gradients[:size // 4]
        reduce(parts[size])

    allreduce(None, 4)  # connects
    peer = Peer(None, rank, 1, most, BUFFER(lambda _context, _index: gradients.data_ptr()), ALLREDUCE(allreduce))
    return ctypes.CDLL(library).bench_serve(board.encode(), ctypes.byref(peer))
