"""Where a trainer's time goes, as its daemon says: what is waiting for input, the trainer tells by gradring.batches."""

import json
import sys

from conftest import ROOT

STEPS = ROOT / "tests/python/trainers/steps.py"


def test_input_computing_and_waiting_for_a_slow_rank_are_told_apart(ring):
    command = [*ring.environment(), f"GRADRINGCTL={ring.cluster.program('gradringctl')}", sys.executable, STEPS, "-",
               "30", "20", "1000", "1", "40", "40"]  # waits 30 ms, computes 20, and the last rank 40 more
    job = ring.cluster.launch("steps", command, per_node=1)
    assert job.wait(120) == [0, 0], [one.complains()[-2000:] for one in job]
    told = json.loads(job[0].says())
    first, last = told["ranks"]
    assert 0.025 < first["input"] < 0.05 and 0.015 < first["compute"] < 0.05, told
    assert first["straggler"] > 0.03 > last["straggler"], told
    assert last["compute"] > 0.05, told
    assert told["straggler"]["rank"] == 1 and 0.03 < told["straggler"]["late_seconds"] < 0.2, told
