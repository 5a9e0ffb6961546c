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


def control_thread_switches(node):
    """How often the control thread, which is the daemon's first, went to sleep so far."""
    pid = node.daemon_pid()
    for line in open(f"/proc/{pid}/task/{pid}/status"):
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
    raise AssertionError("no such line")


def test_ops_by_ring_pass_the_control_thread_by(pair, figure):
    """Otherwise a library that quietly sent messages instead would be noticed by nobody."""
    ops, woken = 2000, {}
    for way in ("ring", "zmq"):
        before = control_thread_switches(pair.nodes[0])
        command = ["/usr/bin/env", f"GRADRING_SUBMIT={way}", str(pair.program("gradring-perf")), "barrier", "--iters",
                   str(ops)]
        job = pair.launch(f"counted-{way}", command, per_node=1)
        assert job.wait(60) == [0] * 2, job[0].complains()
        woken[way] = control_thread_switches(pair.nodes[0]) - before
    figure(f"rings: {ops} barriers woke the control thread {woken['ring']} times, as messages {woken['zmq']} times")
    assert woken["ring"] < ops / 10 < woken["zmq"]


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
