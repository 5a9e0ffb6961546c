"""PyTorch's own tests of torch.distributed, of the installed version, on gradring: run_c10d.py [--as mpi] [-k WORD]...

Four ranks on two daemons of this machine. What PyTorch runs with Gloo, or MPI, is run, and that name is replaced by
ours where a process group is made; so what it allows or refuses for Gloo it does here. Tests for GPUs skip themselves.
"""

import argparse
import collections
import json
import os
import sys
import tempfile
import time
import unittest
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402

# What is not asked of a backend but of Gloo, or what ours says that it does not do.
NOT_APPLICABLE = {
    "monitored_barrier": "torch has it for a backend named gloo alone; any barrier of ours names who is missing",
    "any_source": "receiving from any source is refused by name",
}
RANKS = 4
SECONDS = 90  # for a test


class OurName(str):
    """Where the tests ask whether it is Gloo (or MPI), it is; where they make a group, it is ours."""

    stands_for = "gloo"

    def __eq__(self, other):
        return other == self.stands_for or str.__eq__(self, other)

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def made_for_another_run_on_gradring(other, runtime_dirs):
    """The class of PyTorch's tests, whose ranks find the daemon of their node."""
    OurName.stands_for = other
    os.environ.update(BACKEND=other, WORLD_SIZE=str(RANKS), TEMP_DIR=tempfile.mkdtemp(prefix="c10d-"),
                      MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")
    import torch
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test as suite

    import gradring.torch  # noqa: F401  (makes the backend known)

    torch.set_num_threads(1)
    common_distributed.TIMEOUT_DEFAULT = SECONDS
    suite.BACKEND = OurName("gradring")
    os.environ["BACKEND"] = "mpi"  # with which four ranks are enough for tests of groups
    # Of the checks that are made while a test runs: whatever the other has.
    for backends in suite.DistTestCases.backend_feature.values():
        if other in backends:
            backends.add("gradring")
    for operation, backends in suite.DistTestCases.skip_collective.items():
        if other in backends:
            suite.DistTestCases.skip_collective[operation] = {*backends, "gradring"}

    class OnGradring(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._spawn_processes()

        @classmethod
        def _run(cls, rank, test_name, file_name, pipe, **kwargs):
            os.environ["GRADRING_RUNTIME_DIR"] = str(runtime_dirs[rank * len(runtime_dirs) // RANKS])
            os.environ["GRADRING_JOB"] = test_name[:60]
            warnings.simplefilter("ignore")
            super()._run(rank, test_name, file_name, pipe, **kwargs)

        def _spawn_processes(self):
            # To import torch anew for each rank takes longer than most tests.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    OnGradring.maxDiff = None
    return OnGradring


def tests_of(suite, words):
    for name in unittest.defaultTestLoader.getTestCaseNames(suite):
        if not words or any(word in name for word in words):
            yield name


class Outcome(unittest.TestResult):
    """Of one test: what came of it, and why."""

    def __init__(self):
        super().__init__()
        self.told = ("passed", "")

    def addSkip(self, test, reason):
        self.told = ("skipped", reason)

    def addFailure(self, test, err):
        self.told = ("failed", str(err[1]))

    addError = addFailure


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--as", dest="other", choices=("gloo", "mpi"), default="gloo", help="whose tests are run")
    parser.add_argument("-k", action="append", default=[], metavar="WORD", help="only tests whose names have it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all outcomes there")
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    options = parser.parse_args()
    outcomes = {}
    with testbed.Cluster(options.programs, 2, network=testbed.Loopback, settings={"op-deadline": "60s"}) as ring:
        ring.start()
        suite = made_for_another_run_on_gradring(options.other, [node.runtime_dir for node in ring.nodes])
        names = list(tests_of(suite, options.k))
        for i, name in enumerate(names, 1):
            began = time.monotonic()
            reason = next((why for word, why in NOT_APPLICABLE.items() if word in name), None)
            outcome = Outcome()
            if reason is None:
                suite(name).run(outcome)
            outcomes[name] = ("n/a", reason) if reason else outcome.told
            what, why = outcomes[name]
            print(f"[{i}/{len(names)}] {what:8}{time.monotonic() - began:6.1f} s  {name}", flush=True)
            if what == "failed":
                print("    " + why.strip()[-1500:].replace("\n", "\n    "), flush=True)
    if options.json:
        options.json.write_text(json.dumps(outcomes, indent=1) + "\n", encoding="utf-8")
    counts = collections.Counter(what for what, _ in outcomes.values())
    print(", ".join(f"{counts[what]} {what}" for what in ("passed", "failed", "n/a", "skipped")))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
