"""The same script under each way that torch has to start two ranks on each of two nodes."""

import socket
import sys

import pytest
from conftest import TRAINERS, reports

import cluster as testbed

SCRIPT = TRAINERS / "launched.py"


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def launch(ring, of_node):
    """Runs `of_node(host of the first, port, index, own host)` on each; how many ranks had the right sum."""
    hosts = [node.address.rpartition(":")[0] for node in ring.nodes]
    port = str(free_port())
    agents = []
    for node in ring.nodes:
        command = [*ring.environment(), sys.executable, *of_node(hosts[0], port, node.index, hosts[node.index])]
        agents.append(testbed.Process(f"launch-{node.name}-{port}", command, ring.cluster.folder, ring.cluster.mark,
                                      {"GRADRING_RUNTIME_DIR": str(node.runtime_dir)}, node.prefix))
        ring.cluster.processes.append(agents[-1])
    for agent in agents:
        assert agent.wait(90) == 0, agent.says()[-500:] + agent.complains()[-2500:]
    # Ranks write to one file, and may do so within one another's lines.
    return sum(agent.says().count('{"total": 10.0}') for agent in agents)


WAYS = {
    "torchrun": lambda host, port, node, own: [
        "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-id",
        "by-torchrun", "--rdzv-endpoint", f"{host}:{port}", "--rdzv-conf", f"is_host={int(node == 0)}",
        "--local-addr", own, SCRIPT],
    "torch.distributed.launch": lambda host, port, node, own: [
        "-m", "torch.distributed.launch", "--nnodes", "2", "--node_rank", str(node), "--nproc-per-node", "2",
        "--master_addr", host, "--master_port", port, SCRIPT],
    "mp.spawn": lambda host, port, node, own: [SCRIPT, "spawn", str(node), f"tcp://{host}:{port}"],
}


@pytest.mark.parametrize("way", WAYS)
def test_four_ranks_meet(ring, way):
    assert launch(ring, WAYS[way]) == 4


def test_a_job_is_shown_by_its_name(ring):
    job = ring.launch("waits", name="shown")
    testbed.wait_until(lambda: any("waiting" in one for one in reports(job[0])), 60, "rank 0 waits")
    shown = ring.nodes[0].ask("jobs")
    assert [one["name"] for one in shown["jobs"] if one["state"] != "ended"] == ["shown"], shown
    for trainer in job:
        trainer.kill()
