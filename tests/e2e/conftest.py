"""Clusters for the tests of this folder: real daemons and trainers, on namespaces where that is allowed.

A cluster is shared by the tests of a file. After every test its daemons must be as they were: descriptors,
threads, memory, segments; at the end nothing of the whole run may be left.
"""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402  (found by the line above)
from checks import Baseline  # noqa: E402

FIGURES = []


def pytest_addoption(parser):
    parser.addoption("--programs", default=str(ROOT / "build/bin"), help="folder of the built programs")
    parser.addoption("--seeds", type=int, default=25, help="random programs of each layout, in test_differential.py")
    parser.addoption("--first-seed", type=int, default=1, help="of these programs")


def pytest_sessionfinish(session):
    """With several processes (-n of pytest-xdist) each hands its figures to the first."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["figures"] = FIGURES


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    FIGURES.extend(getattr(node, "workeroutput", {}).get("figures", []))


def pytest_terminal_summary(terminalreporter):
    if FIGURES:
        terminalreporter.section("figures")
        for line in FIGURES:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def programs(request):
    folder = Path(request.config.getoption("--programs")).resolve()
    missing = [name for name in ("gradringd", "gradringctl", "gradring-perf", "gradring-digits",
                                 "gradring-digits-check", "gradring-e2e-trainer",
                                 "gradring-chaos-trainers", "gradring-differential") if not (folder / name).exists()]
    if missing:
        pytest.exit(f"{folder} has no {', '.join(missing)}: build them first (tools/run-tests does)", returncode=2)
    return folder


@pytest.fixture
def figure():
    """Notes a measured figure for the end of the run."""
    return FIGURES.append


class Shared:
    """A cluster that outlives a test, made anew if a test left it broken."""

    def __init__(self, programs, nodes, network):
        self._arguments = programs, nodes, network
        self._cluster = self._baseline = None

    def take(self):
        if self._cluster is None:
            self._cluster = testbed.Cluster(*self._arguments).start()
            self._baseline = Baseline(self._cluster)
        return self._cluster

    def check(self):
        """All is as it was; if not, the next test gets a new cluster."""
        try:
            self._baseline.check()
        except BaseException:
            self.close()
            raise

    def close(self):
        cluster, self._cluster = self._cluster, None
        complaints = cluster.close() if cluster else []
        assert not complaints, "\n".join(complaints)


@pytest.fixture(scope="session")
def namespaces():
    """The network that can be cut and shaped; tests that need it are skipped without it."""
    reason = testbed.why_no_namespaces()
    if reason:
        pytest.skip(f"needs network namespaces: {reason}")
    return testbed.Namespaces


def shared_cluster(nodes):
    @pytest.fixture(scope="module")
    def fixture(programs):
        shared = Shared(programs, nodes, testbed.best_network()[0])
        yield shared
        shared.close()
    return fixture


shared_single = shared_cluster(1)
shared_pair = shared_cluster(2)
shared_quad = shared_cluster(4)


def cluster_of_a_test(shared_name):
    @pytest.fixture
    def fixture(request):
        shared = request.getfixturevalue(shared_name)
        yield shared.take()
        shared.check()
    return fixture


single = cluster_of_a_test("shared_single")
pair = cluster_of_a_test("shared_pair")
quad = cluster_of_a_test("shared_quad")


@pytest.fixture
def make_cluster(programs):
    """Clusters of a test's own, with settings of its own: make_cluster(nodes, settings={...}, ...)."""
    made = []

    def make(nodes, **options):
        options.setdefault("network", testbed.best_network()[0])
        made.append(testbed.Cluster(programs, nodes, **options))
        return made[-1]

    yield make
    complaints = [one for cluster in made for one in cluster.close()]
    assert not complaints, "\n".join(complaints)
