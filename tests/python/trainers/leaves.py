"""Rank 0 leaves a group with ops open that others never come to, in the way of the second word, and goes on; the others go on
with what it had submitted, and learn that it left."""

import sys
import threading
import time

import torch
import torch.distributed as dist
from meet import meet
from report import say

from gradring import GradringError

RANK, SIZE = meet()
LEAVE = {"destroy": dist.destroy_process_group, "abort": lambda group: group.abort(), "shutdown": lambda group: group.shutdown()}
leave = LEAVE[sys.argv[2]]
group = dist.new_group()


def error_of(call):
    try:
        call()
    except GradringError as error:
        return {"rank": error.rank, "cause": error.cause.name, "text": str(error)}
    except RuntimeError as error:  # as futures have it
        return {"text": str(error)}
    return {}


def others_reuse_no_memory_of_ops_left_open():
    """Ops of the same size, whose memory would be that of the op that rank 0 has left."""
    for _ in range(3):
        tensor = torch.full((1000,), 100.0)
        dist.all_reduce(tensor)
        assert (tensor == 100 * SIZE).all()


if RANK == 0:
    works = [dist.all_reduce(torch.ones(1000), group=group, async_op=True), dist.irecv(torch.ones(3), 1, group=group),
             dist.isend(torch.ones(3), 2, group=group)]
    future = works[0].get_future()
    told = []
    waiting = [threading.Thread(target=lambda work=work: told.append(error_of(work.wait))) for work in works]
    for thread in waiting:
        thread.start()
    time.sleep(0.2)
    unheard = dist.all_reduce(torch.ones(7), group=group, async_op=True)
    began = time.monotonic()
    leave(group)
    for thread in waiting:
        thread.join()
    told += [error_of(future.wait), error_of(unheard.wait)]
    say(seconds=time.monotonic() - began, told=told)
    say(after=error_of(lambda: group.barrier()))
    dist.barrier()
    others_reuse_no_memory_of_ops_left_open()
else:
    dist.barrier()  # rank 0 has left by now
    others_reuse_no_memory_of_ops_left_open()
    tensor = torch.ones(1000)
    dist.all_reduce(tensor, group=group)
    say(total=tensor[0].item(), told=error_of(lambda: [dist.all_reduce(torch.ones(7), group=group), dist.barrier(group)]))
dist.barrier()
dist.destroy_process_group()
