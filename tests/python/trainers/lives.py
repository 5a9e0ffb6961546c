"""Into a job and out of it, in the way of the second word. STORE WAY"""

import os
import signal
import sys
import time
from pathlib import Path

import gradring
import numpy as np
from gradring import GradringError
from report import say

RANK = int(os.environ["RANK"])


def error_of(call):
    try:
        call()
    except GradringError as error:
        return {"code": error.code.name, "cause": error.cause.name, "node": error.node, "text": str(error)}
    return {}


def retry():
    """Rank 1 does not find its daemon at first."""
    if RANK == 1:
        say(told=error_of(lambda: gradring.init(runtime_dir="/nowhere")))
    gradring.init()
    say(total=float(gradring.allreduce(np.ones(3), op=gradring.Sum)[0]))
    gradring.shutdown()


def kept():
    """Rank 0 leaves, and keeps an array and ops of the job and of a set."""
    pair = gradring.ProcessSet([0, 1])
    gradring.init(process_sets=[pair])
    groups = [gradring.global_process_set, pair] if RANK < 2 else [gradring.global_process_set]
    array = gradring.empty(1000)
    array[:] = 1
    gradring.allreduce(array, out=array, op=gradring.Sum)
    others_know = [Path(f"{sys.argv[1]}-told-{rank}") for rank in range(1, gradring.size())]
    if RANK == 0:
        left = [gradring.allreduce_async(array, name="of rank 0 alone", process_set=one) for one in groups]
        gradring.shutdown()
        say(kept=float(array.sum()), told=[error_of(one.wait) for one in left])
        deadline = time.monotonic() + 60
        while not all(one.exists() for one in others_know) and time.monotonic() < deadline:  # whoever ends has left in any case
            time.sleep(0.05)
        say(known=all(one.exists() for one in others_know), still=float(array.sum()))
    else:
        say(told=[error_of(lambda: gradring.allreduce(array, name="not of rank 0", process_set=one)) for one in reversed(groups)])
        others_know[RANK - 1].touch()


def signalled():
    """Waits in init() for a rank that never comes, and leaves as a handler of SIGTERM does."""
    def leave(*_):
        gradring.shutdown()
        sys.exit(1)
    signal.signal(signal.SIGTERM, leave)
    say(waiting=True)
    gradring.init()


def orphaned():
    """Until the daemon is gone, and twice more."""
    gradring.init()
    say(waiting=True)
    told = []
    while len(told) < 3:
        if error := error_of(gradring.barrier):
            told.append(error)
    say(told=told)


def beside_one_that_is_stopped():
    """Leaves while the daemon does not answer, with memory of several sizes that nobody uses any more."""
    gradring.init()
    for length in (10, 100_000, 400_000, 1_000_000):
        gradring.allreduce(np.ones(length))
    say(waiting=True)
    while not Path(f"{sys.argv[1]}-stopped").exists():
        time.sleep(0.01)
    start = time.monotonic()
    gradring.shutdown()
    say(took=time.monotonic() - start)


{"retry": retry, "kept": kept, "signalled": signalled, "orphaned": orphaned,
 "stopped": beside_one_that_is_stopped}[sys.argv[2]]()
