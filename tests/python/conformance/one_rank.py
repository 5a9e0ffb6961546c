"""One rank of run_horovod.py: runs a file of Horovod's tests under pytest, and writes what became of each.

usage: one_rank.py FILE RESULTS [WORDS FOR PYTEST...]
"""

import importlib.util
import json
import os
import sys
import threading
import types

import pytest

# The tests ask this of a Horovod that has Gloo for its controller, to learn where they are.
for theirs, ours in (("RANK", "RANK"), ("SIZE", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_RANK"),
                     ("LOCAL_SIZE", "LOCAL_WORLD_SIZE")):
    os.environ[f"HOROVOD_{theirs}"] = os.environ[ours]

import gradring.torch  # noqa: E402  (after the environment)
import torch  # noqa: E402
from gradring import process_sets  # noqa: E402


def stand_in(name, **members):
    """A module that the tests import and that means nothing here."""
    sys.modules[name] = module = types.ModuleType(name)
    module.__dict__.update(members)


def in_thread(target, args=()):
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


def of_tensorflow():
    """Horovod's private names that the tests use."""
    import gradring.tensorflow
    import tensorflow

    eagerly = tensorflow.executing_eagerly
    stand_in("horovod.tensorflow.util", _executing_eagerly=eagerly)
    gradring.tensorflow._executing_eagerly = eagerly
    gradring.tensorflow.util = sys.modules["horovod.tensorflow.util"]


class Internals:
    """What the tests of process sets look up inside Horovod."""

    @staticmethod
    def _get_process_set_ids_and_ranks():
        return {one.process_set_id: one.ranks for one in process_sets._known()}


class Results:
    """A plugin of pytest's."""

    def __init__(self, path, init_first):
        self._init_first = init_first
        self._out = open(path, "w", buffering=1)  # a rank that is killed has written what it knew

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            why = report.longrepr
            if report.outcome == "skipped":
                why = why[2] if isinstance(why, tuple) else str(why)
            elif report.outcome == "failed":
                why = getattr(getattr(why, "reprcrash", None), "message", str(why))
            self._out.write(json.dumps({"test": report.nodeid.split("::")[-1], "outcome": report.outcome,
                                        "when": report.when, "why": str(why or ""),
                                        "seconds": round(report.duration, 2)}) + "\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self):
        if self._init_first:
            gradring.init()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self):
        gradring.shutdown()  # each test begins with a job of its own, whatever became of the last


def main(file, results, *words):
    stand_in("horovod.runner")
    stand_in("horovod.runner.util")
    stand_in("horovod.runner.util.threads", in_thread=in_thread)
    if "process_sets" in file:
        import horovod.torch

        sys.modules["horovod.tensorflow"] = horovod.torch  # for tests that use nothing of TensorFlow
    if "tensorflow" in file and importlib.util.find_spec("gradring.tensorflow") is not None:
        of_tensorflow()
    import horovod.torch.mpi_ops

    horovod.torch.mpi_ops._basics = Internals
    gradring.torch.mpi_enabled = lambda: True  # which Adasum needs there, and not here
    # Newer than the tests, which train biases with every optimizer that torch has.
    if hasattr(torch.optim, "Muon"):
        torch.optim.Muon.__module__ = "newer"
    return pytest.main(["-q", "-c", os.devnull, "--rootdir", os.path.dirname(file), "-p", "no:cacheprovider",
                        "--tb", "short", file, *words], plugins=[Results(results, init_first="keras" in file)])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
