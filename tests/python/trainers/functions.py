"""Functions run on ranks by gradring.run. Says what came back."""

import importlib.util
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import gradring
from gradring import pickling
from report import say


def ranks_sum(add, *, times=1):
    import numpy as np

    import gradring

    gradring.init()
    return gradring.rank(), float(gradring.allreduce(np.array([add]), op=gradring.Sum)[0]) * times


def fails_on_one():
    import gradring

    if os.environ["RANK"] == "1":
        raise LookupError("no such thing")
    gradring.init()
    return 1


def returns_late():
    time.sleep(6 if os.environ["RANK"] == "0" else 0)
    return os.environ["RANK"]


def is_lost():
    import numpy as np

    import gradring

    gradring.init()
    for step in range(5):
        if step == 3 and os.environ["RANK"] == "0":
            os._exit(9)
        gradring.allreduce(np.ones(3))
    return os.environ["RANK"]


def forks_on_one():
    import numpy as np

    import gradring

    gradring.init()
    if gradring.rank() == 0:
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
    return float(gradring.allreduce(np.ones(1), op=gradring.Sum)[0])


def is_told_its_daemon(runtime_dir):
    import gradring

    gradring.init(runtime_dir=runtime_dir)
    size = gradring.size()
    gradring.shutdown()
    return size


def goes_early(how):
    """From a process group, which the others wait in; their error becomes another."""
    import torch

    import gradring.torch  # noqa: F401

    torch.distributed.init_process_group("gradring")
    if torch.distributed.get_rank() == 1:
        if how == "raises":
            raise LookupError("no such batch")
        return
    try:
        torch.distributed.all_reduce(torch.ones(3))
    except RuntimeError as error:
        raise ValueError("a step failed") from error


class OfTwoWords(Exception):
    """Is pickled, and cannot be unpickled."""

    def __init__(self, one, _other):
        super().__init__(one)


def leaves_on_one():
    if os.environ["RANK"] == "1":
        sys.exit()


def ends_silently_on_one():
    if os.environ["RANK"] == "1":
        os._exit(0)


def stays(file):
    def end(*_):
        os.rename(file, f"{file}.ended")
        os._exit(0)
    signal.signal(signal.SIGTERM, end)
    Path(file).touch()
    time.sleep(100)


def variable():
    return os.environ.get("OF_THE_CALLER")


class Learned:
    """What a function of a script returns may be of a class of the script."""

    def __init__(self, weight):
        self.weight = weight


def elsewhere(folder):
    """An --rsh to a host that has nothing of this one's environment."""
    path = Path(folder) / "rsh"
    path.write_text('#!/bin/sh\nshift\nexec env -i PATH=/usr/bin:/bin sh -c "$*"\n')
    path.chmod(0o755)
    return ["--rsh", str(path)]


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
    say(raised=refused(functions.fails_on_one, np=2, env={"PYTHONPATH": sys.argv[1]}, start_timeout=2))
    say(late=gradring.run(functions.returns_late, np=2, env={"PYTHONPATH": sys.argv[1]}, start_timeout=2))
    say(left=gradring.run(functions.is_lost, np=3, env={"PYTHONPATH": sys.argv[1]}, min_np=2))
    say(forked=gradring.run(functions.forks_on_one, np=2, env={"PYTHONPATH": sys.argv[1]}))
    say(told=gradring.run(functions.is_told_its_daemon, (os.environ["GRADRING_RUNTIME_DIR"],), np=2,
                          env={"PYTHONPATH": sys.argv[1], "GRADRING_RUNTIME_DIR": "/nowhere"}))
    if importlib.util.find_spec("torch") is not None:
        say(grouped=[refused(functions.goes_early, (how,), np=2, env={"PYTHONPATH": sys.argv[1]}) for how in ("raises", "returns")])
    say(lame=refused(functions.OfTwoWords, (1, 2), np=2, env={"PYTHONPATH": sys.argv[1]}))
    say(exited=refused(functions.leaves_on_one, np=2, env={"PYTHONPATH": sys.argv[1]}))
    say(ended=refused(os._exit, (3,), np=2))
    say(silent=refused(functions.ends_silently_on_one, np=2, env={"PYTHONPATH": sys.argv[1]}))
    say(large=refused(len, (b"x" * 200_000,), np=2))
    say(as_horovods=gradring.run(functions.ranks_sum, (2.0,), env={"PYTHONPATH": sys.argv[1]}, num_proc=2, use_gloo=True,
                                 use_mpi=False, verbose=1, start_timeout=30, slots=2, reset_limit=0, ssh_port=None,
                                 mpi_args="-x A", cooldown_range=(1, 2), network_interfaces=["lo", "eth0"],
                                 min_np=1, disable_cache=True))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "of_another_folder.py").write_text("def answer():\n    return 42\n")
        sys.path.append(folder)
        import of_another_folder
        say(found=gradring.run(of_another_folder.answer))
        say(silent_elsewhere=refused(functions.ends_silently_on_one, np=2, hosts="localhost:1,other:1", flags=elsewhere(folder),
                                     env={"PYTHONPATH": sys.argv[1]}))
        say(variables=gradring.run(functions.variable, np=2, hosts="localhost:1,other:1", flags=elsewhere(folder),
                                   env={"PYTHONPATH": sys.argv[1], "OF_THE_CALLER": "7"}))
    if pickling.by_value():
        [learned] = gradring.run(Learned, (7,))
        say(learned=learned.weight if isinstance(learned, Learned) else str(learned))
    say(none=refused(len, ((),), np=0), nowhere=refused(len, ((),), hosts=""))
    say(unknown=refused(len, ((),), use_glue=True))
