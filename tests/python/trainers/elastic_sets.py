"""Process sets of an elastic job of four, in which number 0 is lost, somebody with process sets is refused in its place,
and another comes in. STORE [refused|comes]. Says how many ranks there are after each change."""

import os
import sys
import time

import gradring
import numpy as np
from expect import refused
from gradring.elastic import HostsUpdatedInterrupt, ObjectState
from report import say

ROLE = sys.argv[2] if len(sys.argv) > 2 else "first"
if ROLE == "refused":
    refused(ValueError, "runs already", gradring.init, process_sets=[gradring.ProcessSet([0, 1])],
            policy="elastic min=1")
    say(refused=True)
    sys.exit()
gradring.init(policy="elastic min=1")
NUMBER = int(os.environ["RANK"])
state = ObjectState(step=0)


def exchange_among(one, numbers):
    """Each has its number."""
    assert one.size() == len(numbers) and one.included() == (NUMBER in numbers), one
    if NUMBER not in numbers:
        return
    assert one.rank() == numbers.index(NUMBER) and one.ranks[one.rank()] == gradring.rank(), one
    mine = np.full(1, NUMBER)
    assert gradring.allreduce(mine, op=gradring.Sum, process_set=one) == sum(numbers)
    assert gradring.allreduce(mine, process_set=one) == sum(numbers) // len(numbers)
    assert gradring.allgather(mine, process_set=one).tolist() == numbers
    assert gradring.broadcast_object(NUMBER, one.ranks[1], process_set=one) == numbers[1]
    assert gradring.alltoall(np.full(2, NUMBER), process_set=one).tolist() == numbers


def wait_for_change():
    while True:
        try:
            state.commit()
            time.sleep(0.05)
        except HostsUpdatedInterrupt:
            say(size=gradring.size())
            return


def make_them_and_end():
    for one, numbers in [(gradring.add_process_set(numbers), numbers) for numbers in ([0, 2], [1, 3])]:
        exchange_among(one, numbers)
    gradring.barrier()
    gradring.shutdown()
    sys.exit()


if ROLE == "comes":
    make_them_and_end()
without, within = gradring.add_process_set([1, 3]), gradring.add_process_set([0, 2])
exchange_among(without, [1, 3])
exchange_among(within, [0, 2])
gradring.barrier()
if NUMBER == 0:
    os._exit(3)
assert gradring.allreduce(np.full(1, 6)) == 6  # an average of three, whom nobody has counted yet
for ranks in ([0, 2], [1, 3], [0, 2], [1, 3]):
    wait_for_change()
    assert without.ranks == ranks, without
    exchange_among(without, [1, 3])
    for use in (within.size, lambda: gradring.allreduce(np.ones(1), process_set=within)):
        refused(ValueError, "rank 0 of the process set of ranks [0, 2] was lost", use)
    assert gradring.process_set_ids() == [0, 1]
gradring.remove_process_set(without)
make_them_and_end()
