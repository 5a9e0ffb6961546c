"""gradringctl topology: what live daemons tell of their machine, and of the rings of their jobs."""

import json
from pathlib import Path

from checks import TRAINER, wait_for_all
from cluster import wait_until

MACHINES = Path(__file__).resolve().parents[1] / "machines"


def seen(node):
    """The node's report, once its daemon has looked at the machine."""
    def ready():
        report = node.ask("topology")["nodes"][0]
        return report if "still being looked at" not in report["machine"]["fault"] else None
    return wait_until(ready, 30, f"{node.name} has looked at its machine")


def test_a_daemon_shows_its_machine(single):
    node = single.nodes[0]
    report = seen(node)
    machine = report["machine"]
    assert report["node"] == node.name and machine["fault"] == "", machine
    assert machine["numa"] and machine["host"], machine
    devices = len(machine["gpus"]) + len(machine["nics"])
    assert len(machine["distances"]) == devices ** 2
    assert len(report["lanes"]) == 1 and report["lanes"][0]["reason"], report["lanes"]
    status, text, complaint = node.ctl("topology")
    assert status == 0 and f"node {node.name}: " in text and "NUMA node 0: CPUs" in text, (status, text, complaint)


def test_the_ring_of_a_job_and_why(quad):
    job = quad.launch("ringed", [TRAINER, "--ops", "200", "--delay-ms", "20"], per_node=2)
    wait_for_all(job, "done", 0)
    for node in quad.nodes:
        ring, = seen(node)["rings"]
        assert ring["job"] == "ringed"
        assert [(one["node"], one["ranks"]) for one in ring["members"]] == [
            (f"n{i}", [2 * i, 2 * i + 1]) for i in range(4)]
        assert ring["reason"] == "in the order of their lowest ranks: n0 has 0, n1 has 2, n2 has 4, n3 has 6"
    picture, graph = quad.folder / "ring.svg", quad.folder / "ring.dot"
    status, text, complaint = quad.nodes[0].ctl("topology", "--svg", picture, "--dot", graph)
    assert status == 0 and "n0 [0-1] -> n1 [2-3] -> n2 [4-5] -> n3 [6-7] -> n0" in text, (status, text, complaint)
    assert picture.read_text().count('<path class="lane0"') == 4
    assert graph.read_text().startswith("digraph topology {")
    job.kill()


def test_a_recorded_machine_and_a_card_that_was_wished_for(make_cluster):
    ring = make_cluster(1, settings={"machine-recording": MACHINES / "dgx-h100", "gpu-nic": ["0=mlx5_2", "9=mlx5_0"]})
    machine = seen(ring.start().nodes[0])["machine"]
    assert machine["recording"].endswith("dgx-h100") and len(machine["gpus"]) == 8
    names = [nic["name"] for nic in machine["nics"]]
    chosen = [names[one["choices"][0]["nic"]] for one in machine["affinity"]]
    assert chosen == ["mlx5_2", "mlx5_0", *(f"mlx5_{i}" for i in range(3, 9))], chosen
    assert machine["affinity"][0]["choices"][0]["reason"] == "named by gpu-nic"
    assert machine["notes"] == ["gpu-nic 9=mlx5_0: there is no such GPU"]


def test_a_daemon_runs_without_knowing_its_machine(make_cluster, tmp_path):
    (tmp_path / "machine.yaml").write_text("gradring-machine: 1\n")
    (tmp_path / "hwloc.xml").write_text("<topology")
    node = make_cluster(1, settings={"machine-recording": tmp_path}).start().nodes[0]
    assert "hwloc.xml" in seen(node)["machine"]["fault"]
    status, text, _ = node.ctl("topology")
    assert status == 0 and "cannot be shown" in text
    assert json.loads(node.ctl("--json", "status")[1])["state"] == "ready"
    assert "gradringctl topology will not show this machine" in node.log()
