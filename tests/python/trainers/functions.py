"""Functions run on ranks by gradring.run. Says what came back."""

import os
import sys

import gradring
from report import say


def ranks_sum(add, *, times=1):
    import numpy as np

    import gradring

    gradring.init()
    return gradring.rank(), float(gradring.allreduce(np.array([add]), op=gradring.Sum)[0]) * times


def fails_on_one():
    if os.environ["RANK"] == "1":
        raise LookupError("no such thing")
    return 1


def refused(function, *args, **keywords):
    try:
        gradring.run(function, *args, **keywords)
    except (RuntimeError, TypeError, ValueError) as error:
        return str(error)
    raise AssertionError("it went well")


if __name__ == "__main__":
    # By name, as functions of scripts need cloudpickle.
    import functions

    say(results=gradring.run(functions.ranks_sum, (2.0,), {"times": 10}, np=3, env={"PYTHONPATH": sys.argv[1]}))
    say(raised=refused(functions.fails_on_one, np=2, env={"PYTHONPATH": sys.argv[1]}))
    say(ended=refused(os._exit, (3,), np=2))
    say(large=refused(len, (b"x" * 200_000,), np=2))
    say(as_horovods=gradring.run(functions.ranks_sum, (2.0,), env={"PYTHONPATH": sys.argv[1]}, num_proc=2, use_gloo=True,
                                 use_mpi=False, verbose=1, start_timeout=30, slots=2, reset_limit=0, ssh_port=None,
                                 mpi_args="-x A", cooldown_range=(1, 2), network_interfaces=["lo", "eth0"],
                                 min_np=1, disable_cache=True))
    say(unknown=refused(len, ((),), use_glue=True))
