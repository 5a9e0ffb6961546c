"""Two ways of using mpi4py beside gradring, under mpirun. RUNTIME-DIRECTORY WAY: whole, or halves"""

import os
import sys

from mpi4py import MPI

os.environ["GRADRING_RUNTIME_DIR"] = sys.argv[1]
import gradring.torch as hvd  # noqa: E402
import torch  # noqa: E402
from report import say  # noqa: E402

world = MPI.COMM_WORLD
if sys.argv[2] == "whole":
    hvd.init()
    assert hvd.mpi_threads_supported()
    assert hvd.size() == world.Get_size() and hvd.rank() == world.Get_rank()
else:
    hvd.init(comm=world.Split(color=world.rank % 2, key=world.rank))
mean = hvd.allreduce(torch.tensor([float(world.rank)]))
say(way=sys.argv[2], rank=world.rank, of=hvd.size(), mean=float(mean), by_mpi=world.allreduce(world.rank))
hvd.shutdown()
