"""Actors of Ray as ranks, over two nodes."""

import os
import signal
import sys
from pathlib import Path

import pytest
from conftest import TRAINERS, reports

import cluster as testbed

pytest.importorskip("ray", reason="ray is not installed (tests/python/requirements-full.txt)")

RAY = Path(sys.executable).parent / "ray"
MEMORY = 80 << 20  # of the store of objects; Ray takes no less


def process(ring, node, name, *command):
    """On the node, under a host name of its own."""
    environment = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": f"{TRAINERS}:{os.environ.get('PYTHONPATH', '')}"}
    made = testbed.Process(name, [*node.as_host(), *command], ring.cluster.folder, ring.cluster.mark, environment,
                           node.prefix)
    ring.cluster.processes.append(made)
    return made


@pytest.fixture
def ray(ring):
    """Ray's address."""
    if not isinstance(ring.cluster.network, testbed.Namespaces):
        pytest.skip(f"needs network namespaces: {testbed.why_no_namespaces()}")
    hosts = [node.address.rpartition(":")[0] for node in ring.nodes]
    address = f"{hosts[0]}:6379"
    roles = [["--head", "--port", "6379", "--include-dashboard", "false", "--temp-dir", f"{ring.cluster.folder}/ray"],
             ["--address", address]]
    started = []
    for node, host, role in zip(ring.nodes, hosts, roles):
        one = process(ring, node, f"ray-{node.name}", RAY, "start", *role, "--node-ip-address", host, "--num-cpus", "2",
                      "--object-store-memory", str(MEMORY), "--block")
        started.append(one)
        testbed.wait_until(lambda n=one: "Ray runtime started" in n.says() or not n.running(), 90,
                           f"Ray has started on {node.name}")
        assert one.running(), one.says()[-1500:] + one.complains()[-1500:]
    yield address
    for one in started:
        one.signal(signal.SIGTERM)
    for one in started:
        one.wait(60)


def test_four_actors_are_one_job(ring, ray):
    driver = process(ring, ring.nodes[0], "ray-driver", sys.executable, TRAINERS / "ray_actors.py", ray,
                     ring.cluster.folder)
    assert driver.wait(90) == 0, driver.says()[-500:] + driver.complains()[-2500:]
    said = reports(driver)
    assert [(one["rank"], one["size"], one["local_size"], one["total"]) for one in said] == [
        (rank, 4, 2, 10.0) for rank in range(4)]
    assert sorted(one["node"] for one in said) == ["n0", "n0", "n1", "n1"]
