"""Trainers of others on gradring. They are in no list of requirements: `pip install lightning`, `"ray[train]"`, `transformers
accelerate`, `pytorch-ignite`, or `deepspeed` (with `--no-build-isolation`)."""

import os
import sys

import pytest
from conftest import ROOT, TRAINERS, reports

import cluster as testbed
from cluster.process import marked


SHIM = f"PYTHONPATH={ROOT / 'client/python/shim/horovod'}:{os.environ.get('PYTHONPATH', '')}"


def trained(ring, name, *environment):
    """What the trainer of that name said at last on each of four ranks on two nodes, as torchrun would start them."""
    host = ring.nodes[0].address.rpartition(":")[0]
    told = [f"TORCHELASTIC_RUN_ID={name}", f"MASTER_ADDR={host}", "MASTER_PORT=20300", *environment]
    command = [*ring.environment(), *told, sys.executable, TRAINERS / f"{name}_trainer.py", ring.cluster.folder / name]
    job = ring.cluster.launch(name, command, per_node=2)
    assert job.wait(180) == [0] * 4, "\n".join(one.complains()[-2000:] for one in job)
    return [reports(one) for one in job]


def test_lightning_trains_on_two_nodes(ring):
    pytest.importorskip("lightning", reason="needs lightning")
    ends = [one[-1] for one in trained(ring, "lightning")]
    assert all(one == ends[0] for one in ends), ends
    assert ends[0]["backend"] == "gradring.torch.process_group" and ends[0]["size"] == 4 and ends[0]["saved"], ends
    assert ends[0]["validated"] < 1, ends  # of 8 at first


def test_hugging_face_trains_on_two_nodes(ring):
    pytest.importorskip("transformers", reason="needs transformers and accelerate")
    ends = [one[-1] for one in trained(ring, "huggingface", "HF_HUB_OFFLINE=1", "ACCELERATE_USE_CPU=true")]
    assert all(one == ends[0] for one in ends), ends
    assert ends[0]["backend"] == "gradring.torch.process_group" and ends[0]["size"] == 4 and ends[0]["steps"] == 12, ends
    assert ends[0]["predicted"] == 101 and ends[0]["sum"] == 10 and ends[0]["ranks"] == [0, 1, 2, 3], ends
    assert ends[0]["best"] < 3.5, ends  # of log(50) at first, which is 3.9


def test_deepspeed_trains_on_two_nodes(ring):
    pytest.importorskip("deepspeed", reason="needs deepspeed")
    of_ranks = trained(ring, "deepspeed", f"TORCH_EXTENSIONS_DIR={ring.cluster.folder / 'extensions'}")
    assert all(one == of_ranks[0] for one in of_ranks), of_ranks
    assert [one["stage"] for one in of_ranks[0]] == [0, 1, 2, 3], of_ranks[0]
    for one in of_ranks[0]:
        assert one["backend"] == "gradring.torch.process_group" and one["size"] == 4, one
        assert one["weights"] == pytest.approx(of_ranks[0][0]["weights"], rel=1e-4), of_ranks[0]


def test_ignite_trains_on_two_nodes(ring):
    pytest.importorskip("ignite", reason="needs pytorch-ignite")
    of_ranks = trained(ring, "ignite", SHIM)
    assert all(one == of_ranks[0] for one in of_ranks), of_ranks
    assert [one["kind"] for one in of_ranks[0]] == ["native-dist", "horovod-dist"], of_ranks[0]
    for one in of_ranks[0]:
        assert one["size"] == 4 and one["ranks"] == [0, 1, 2, 3] and one["word"] == "from 1" and one["sum"] == 10, one


def test_ray_trains(ring):
    pytest.importorskip("ray.train.torch", reason='needs "ray[train]"', exc_type=ImportError)
    # Ray has workers of its own; tokens lie in the home of whoever runs it.
    command = [*ring.environment(), SHIM, "RAY_AUTH_MODE=disabled", "RAY_USAGE_STATS_ENABLED=0", sys.executable,
               TRAINERS / "ray_trainer.py", ring.cluster.folder / "ray"]
    job = ring.cluster.launch("ray", command, nodes=ring.nodes[:1])
    assert job.wait(240) == [0], job[0].complains()[-3000:]
    # Ray's own go after its ray.shutdown().
    testbed.wait_until(lambda: not any("ray::" in one or "raylet" in one for one in marked(ring.cluster.mark).values()), 60, "Ray to end")
    ends = reports(job[0])
    assert [one["rank"] for one in ends] == [0, 1] and all(one["size"] == 2 and one["sum"] == 3 for one in ends), ends
    assert {one["backend"] for one in ends} == {"gradring.torch.process_group"} and len({one["digest"] for one in ends}) == 1, ends
