"""Trainers of others on gradring. They are in no list of requirements: `pip install lightning`, `pip install "ray[train]"`."""

import os
import sys

import pytest
from conftest import ROOT, TRAINERS, reports

import cluster as testbed
from cluster.process import marked


def test_lightning_trains_on_two_nodes(ring):
    """As torchrun would start it."""
    pytest.importorskip("lightning", reason="needs lightning")
    host = ring.nodes[0].address.rpartition(":")[0]
    told = ["TORCHELASTIC_RUN_ID=lightning", f"MASTER_ADDR={host}", "MASTER_PORT=20300"]
    command = [*ring.environment(), *told, sys.executable, TRAINERS / "lightning_trainer.py", ring.cluster.folder / "lightning"]
    job = ring.cluster.launch("lightning", command, per_node=2)
    assert job.wait(180) == [0] * 4, "\n".join(one.complains()[-2000:] for one in job)
    ends = [reports(one)[-1] for one in job]
    assert all(one == ends[0] for one in ends), ends
    assert ends[0]["backend"] == "gradring.torch.process_group" and ends[0]["size"] == 4 and ends[0]["saved"], ends
    assert ends[0]["validated"] < 1, ends  # of 8 at first


def test_ray_trains(ring):
    pytest.importorskip("ray.train.torch", reason='needs "ray[train]"', exc_type=ImportError)
    path = f"{ROOT / 'client/python/shim/horovod'}:{os.environ.get('PYTHONPATH', '')}"
    # Ray has workers of its own; tokens lie in the home of whoever runs it.
    command = [*ring.environment(), f"PYTHONPATH={path}", "RAY_AUTH_MODE=disabled", "RAY_USAGE_STATS_ENABLED=0", sys.executable,
               TRAINERS / "ray_trainer.py", ring.cluster.folder / "ray"]
    job = ring.cluster.launch("ray", command, nodes=ring.nodes[:1])
    assert job.wait(240) == [0], job[0].complains()[-3000:]
    # Ray's own go after its ray.shutdown().
    testbed.wait_until(lambda: not any("ray::" in one or "raylet" in one for one in marked(ring.cluster.mark).values()), 60, "Ray to end")
    ends = reports(job[0])
    assert [one["rank"] for one in ends] == [0, 1] and all(one["size"] == 2 and one["sum"] == 3 for one in ends), ends
    assert {one["backend"] for one in ends} == {"gradring.torch.process_group"} and len({one["digest"] for one in ends}) == 1, ends
