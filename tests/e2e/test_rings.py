"""Submissions through shared memory, and as messages: the same results, and nobody is busy who has nothing to do."""

import time

import cluster as testbed
import pytest
from checks import TRAINER, wait_for_all

SIZES = ["--min", "4", "--max", "4M", "--factor", "32"]


@pytest.mark.parametrize("way", ["ring", "zmq"])
def test_both_ways_give_the_same(pair, way):
    command = ["/usr/bin/env", f"GRADRING_SUBMIT={way}", str(pair.program("gradring-perf")), "allreduce", *SIZES, "--check"]
    job = pair.launch(f"by-{way}", command, per_node=2)
    assert job.wait(60) == [0] * 4, job[0].says() + "".join(one.complains() for one in job)
    assert "# Wrong values: 0 OK" in job[0].says()


def test_who_waits_sleeps(pair, figure):
    """One rank is late by seconds: neither the others nor the daemons look on for so long."""
    job = pair.launch("late", [TRAINER, "--ops", "3"], per_node=2, of_rank={3: ["--delay-ms", "2500"]})
    wait_for_all(list(job)[:3], "done", 1)
    time.sleep(0.5)
    pids = [one.pid for one in list(job)[:3]] + [node.daemon_pid() for node in pair.nodes]
    before = [testbed.cpu_seconds(pid) for pid in pids]
    time.sleep(1.5)
    used = [after - since for after, since in zip((testbed.cpu_seconds(pid) for pid in pids), before)]
    assert job.wait(60) == [0] * 4
    figure(f"rings: in 1.5 s of waiting 3 trainers used {sum(used[:3]) * 1e3:.0f} ms of processor time, 2 daemons "
           f"{sum(used[3:]) * 1e3:.0f} ms")
    assert max(used) < 0.3, used
