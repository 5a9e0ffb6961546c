"""Ranks of a job as actors of Ray, two on each of its two nodes: ray_actors.py ADDRESS FOLDERS"""

import os
import sys

import ray

from report import say

RANKS = 4


@ray.remote(num_cpus=1)
class Rank:
    def __init__(self, rank, job, folders):
        os.environ.update(GRADRING_RANK=str(rank), GRADRING_SIZE=str(RANKS), GRADRING_JOB=job,
                          GRADRING_RUNTIME_DIR=f"{folders}/{os.uname().nodename}")

    def train(self):
        import gradring
        import numpy as np

        gradring.init()
        total = gradring.allreduce(np.full(5, gradring.rank() + 1.0), op=gradring.Sum)
        return {"rank": gradring.rank(), "size": gradring.size(), "local_size": gradring.local_size(),
                "node": os.uname().nodename, "total": float(total[0])}


def main(address, folders):
    ray.init(address=address)
    ranks = [Rank.options(scheduling_strategy="SPREAD").remote(rank, "by-ray", folders) for rank in range(RANKS)]
    for told in ray.get([one.train.remote() for one in ranks], timeout=60):
        say(**told)


if __name__ == "__main__":
    main(*sys.argv[1:])
