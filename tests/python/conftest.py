"""Trainers in Python on real daemons. Runs with the interpreter that has gradring, torch and pytest."""

import contextlib
import json
import re
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402  (found by the line above)
from forks import ForkServers  # noqa: E402

TRAINERS = ROOT / "tests/python/trainers"

# Run in the background of a script these tests, and with them all trainers, would begin with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--programs", default=str(ROOT / "build/bin"), help="folder of the built programs")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: tools/run-tests runs it with --full")


class Ring:
    """A cluster, and the scripts of trainers/ on it."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.nodes = cluster.nodes
        self._runs = 0
        # Gloo goes by the name of the host else, which is the same on all nodes.
        device = "eth0" if isinstance(cluster.network, testbed.Namespaces) else "lo"
        # One thread a rank: they share two processors.
        self._settings = {"GLOO_SOCKET_IFNAME": device, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
                          "TORCH_CPP_LOG_LEVEL": "ERROR"}
        self._fork_servers = ForkServers(cluster, self._settings)

    def environment(self):
        return ["/usr/bin/env", *(f"{name}={value}" for name, value in self._settings.items())]

    def launch(self, script, *words, per_node=2, name=None, nodes=None, fresh=False):
        """The ranks of a job that meet through a file, which is the first word they get.

        `fresh`: interpreters of their own, also of a script that begins with torch; else those are forked (forks.py).
        """
        self._runs += 1
        name = name or f"{script}-{self._runs}"
        command = [TRAINERS / f"{script}.py", self.cluster.folder / f"store-{self._runs}", *words]
        if not fresh and re.search(r"^import torch\b", command[0].read_text(), re.MULTILINE):
            return self.cluster.launch(name, command, per_node=per_node, nodes=nodes, start=self._fork_servers.start)
        return self.cluster.launch(name, [*self.environment(), sys.executable, *command], per_node=per_node, nodes=nodes)

    def run(self, script, *words, per_node=2, seconds=120, fresh=False):
        """The same; all must end well. What each rank reported, by rank."""
        job = self.launch(script, *words, per_node=per_node, fresh=fresh)
        statuses = job.wait(seconds)
        assert statuses == [0] * len(job), "\n".join(
            f"{one.name}: {one.status}: {one.says()[-800:]}{one.complains()[-2500:]}" for one in job if one.status != 0)
        return [reports(one) for one in job]


def reports(trainer):
    return [json.loads(line) for line in trainer.says().splitlines() if line.startswith("{")]


@contextlib.contextmanager
def two_nodes(config, settings=None):
    programs = Path(config.getoption("--programs")).resolve()
    network, _ = testbed.best_network()
    made = testbed.Cluster(programs, 2, network=network, settings=settings)
    try:
        yield Ring(made.start())
    finally:
        complaints = made.close()
    assert not complaints, "\n".join(complaints)


@pytest.fixture(scope="module")
def ring(request):
    """Two nodes, for the tests of a file."""
    with two_nodes(request.config) as made:
        yield made


@pytest.fixture(scope="session")
def driver(request):
    """Of GPUs that are none: tests/client/cuda_twin.h."""
    return Path(request.config.getoption("--programs")).resolve().parent / "lib/cuda_twin/libcuda.so.1"


@pytest.fixture
def ring_with_gpus(request, driver, monkeypatch):
    """Two nodes whose daemons sum on GPUs of that driver."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver.parent))
    with two_nodes(request.config, {"gpu-sums": "on"}) as made:
        yield made
