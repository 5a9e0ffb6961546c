"""Trainers that use mpi4py as well."""

import json
import os
import re
import shutil
import sys

import pytest
from conftest import TRAINERS

import cluster as testbed

pytest.importorskip("mpi4py", reason="mpi4py is not installed (tests/python/requirements-full.txt)")

RANKS = 4


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun (Debian's openmpi-bin)")
@pytest.mark.parametrize("way", ["whole", "halves"])
def test_both_are_used_by_one_process(ring, way):
    node = ring.nodes[0]
    command = ["/usr/bin/env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMP_NUM_THREADS=1",
               f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}:{TRAINERS}", "mpirun", "--oversubscribe", "-np",
               str(RANKS), "--mca", "btl", "self,vader", sys.executable, TRAINERS / "mpi_ranks.py",
               str(node.runtime_dir), way]
    agent = testbed.Process(f"mpi-{way}", command, ring.cluster.folder, ring.cluster.mark, {}, node.prefix)
    ring.cluster.processes.append(agent)
    assert agent.wait(120) == 0, agent.says()[-500:] + agent.complains()[-2500:]
    # Ranks write to one pipe, and may do so within one another's lines.
    said = sorted((json.loads(told) for told in re.findall(r"{[^{}]*}", agent.says())), key=lambda one: one["rank"])
    assert [one["by_mpi"] for one in said] == [6] * RANKS
    if way == "whole":
        assert [(one["of"], one["mean"]) for one in said] == [(4, 1.5)] * RANKS
    else:
        assert [(one["of"], one["mean"]) for one in said] == [(2, 1.0), (2, 2.0)] * 2
