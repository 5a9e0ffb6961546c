"""Where a NaN comes from is told, by every node, long after it has spread to all."""

import os
import signal

from checks import TRAINER, child_of, events, wait_for_all

import cluster as testbed

COUNT = 300_001  # five slices
SPOILT = COUNT // 2  # where the trainer puts the bad value

# Longer than the test asks questions; it kills them.
STEPS = [TRAINER, "--ops", "3000", "--delay-ms", "20", "--count", str(COUNT), "--keep-going"]


def origin_of(report):
    """(kind, node, rank, op, element) of the first value that was not finite."""
    first = report["first_nonfinite"]
    return first["kind"], first["node"], first.get("rank"), first["sequence"], first["element"]


def warnings_of(node, job):
    return [line for line in node.log(10_000).splitlines() if f"job {job} " in line and "first " in line]


def test_the_rank_that_brought_the_first_nan_is_named(pair):
    late = {0: ["--at", "6", "--act", "nan"]}  # and on the other node
    job = pair.launch("spoilt", STEPS, per_node=2, of_rank={3: ["--at", "2", "--act", "nan"], **late})
    guilty = job[3]
    wait_for_all(job, "done", 7)
    for node in pair.nodes:
        report = node.ask("job", "spoilt")
        assert origin_of(report) == ("nan", guilty.node.name, 3, 2, SPOILT)
        assert report["first_nonfinite"]["pid"] == guilty.pid
        assert [rank["nonfinite"] for rank in report["ranks"]] == [1, 0, 0, 1]
        status, text, _ = node.ctl("job", "spoilt")
        assert f"first NaN: rank 3 (node {guilty.node.name}, pid {guilty.pid}), op 2 element {SPOILT}, " in text
        assert status == 0, "training with loss scaling overflows now and then: that is no fault of the job"
    for node, rank, trainer in ((pair.nodes[0], 0, job[0]), (pair.nodes[1], 3, guilty)):
        lines = warnings_of(node, "spoilt")
        assert len(lines) == 1 and f"first NaN of this node's ranks: rank {rank} (pid {trainer.pid})" in lines[0], lines
    job.kill()


def test_a_sum_of_finite_values_that_overflows_is_named_where_it_does(pair):
    largest = ["--at", "2", "--act", "largest"]
    job = pair.launch("outgrown", STEPS, per_node=2, of_rank={2: largest, 3: largest})
    wait_for_all(job, "done", 3)
    for node in pair.nodes:
        report = node.ask("job", "outgrown")
        assert origin_of(report) == ("overflow", job[3].node.name, None, 2, SPOILT)
        assert [rank["nonfinite"] for rank in report["ranks"]] == [0, 0, 0, 0]
        assert f"first overflow: node {job[3].node.name}, op 2 element {SPOILT}, " in node.ctl("job", "outgrown")[1]
    job.kill()


def test_of_a_healthy_job_nothing_is_said(pair):
    job = pair.launch("sound", STEPS, per_node=2)
    wait_for_all(job, "done", 2)
    assert "first_nonfinite" not in pair.nodes[0].ask("job", "sound")
    assert "NaN" not in pair.nodes[0].ctl("job", "sound")[1]
    job.kill()


def test_the_first_nan_is_told_after_its_rank_is_gone(pair):
    job = pair.launch("survived", [*STEPS, "--policy", "elastic"], per_node=2, of_rank={3: ["--at", "2", "--act", "nan"]})
    wait_for_all(job, "done", 7)
    job[3].signal(signal.SIGKILL)
    testbed.wait_until(lambda: pair.nodes[0].ask("job", "survived")["size"] == 3, 20, "the others go on")
    for node in pair.nodes:
        report = node.ask("job", "survived")
        assert origin_of(report) == ("nan", job[3].node.name, 3, 2, SPOILT)
        assert report["first_nonfinite"]["pid"] == job[3].pid
    job.kill()


def test_the_first_is_still_the_first_after_a_restart_of_its_daemon(make_cluster):
    """By then all ranks have NaNs, and one that has nothing to do with it would be named."""
    cluster = make_cluster(2, settings={"restart-grace": "20s"}).start(kept=(0, 1))
    job = cluster.launch("goes-on", STEPS, of_rank={1: ["--at", "2", "--act", "nan"], 0: ["--at", "60", "--act", "nan"]})
    wait_for_all(job, "done", 3)
    second = cluster.nodes[1]
    for _ in range(2):  # the next life hands it on as well
        old = child_of(second)
        os.kill(old, signal.SIGKILL)
        testbed.wait_until(lambda gone=old: second.daemon_pid() not in (None, gone), 10, "the next daemon is there")
        ops = max(len(events(one, "done")) for one in job)
        wait_for_all(job, "done", ops + 5)
    wait_for_all(job, "done", 61)
    for node in cluster.nodes:
        report = node.ask("job", "goes-on")
        assert origin_of(report) == ("nan", "n1", 1, 2, SPOILT) and report["first_nonfinite"]["pid"] == job[1].pid
    job.kill()
