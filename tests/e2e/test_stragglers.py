"""Where the time of a step goes, and who is late, without a second run."""

import os
import re
import signal
import subprocess
import time

import pytest
from checks import TRAINER, wait_for_all

import cluster as testbed

STEPS = [TRAINER, "--ops", "100000", "--count", "20000"]


def slow(*ranks):
    """How long each of four ranks computes: those that are slow longer by 20 ms."""
    return {rank: ["--delay-ms", "40" if rank in ranks else "20"] for rank in range(4)}


def steps_of(node, job, least):
    """By rank, once all have made so many steps."""
    report = node.ask("job", job, missing_ok=True)
    ranks = {rank["rank"]: rank.get("steps") for rank in report["ranks"]} if report else {}
    return report if len(ranks) == 4 and all(steps and steps["steps"] >= least for steps in ranks.values()) else None


def share(steps, part):
    mean = steps["mean_seconds"]
    return mean[part] / sum(mean[name] for name in ("compute", "input", "straggler", "exposed"))


def test_a_rank_that_is_late_in_each_step_is_named_within_100_of_them(pair):
    job = pair.launch("uneven", STEPS, per_node=2, of_rank=slow(2))
    wait_for_all(job, "done", 3)
    report = testbed.wait_until(lambda: steps_of(pair.nodes[0], "uneven", 60), 60, "60 steps")
    assert min(rank["steps"]["steps"] for rank in report["ranks"]) < 100, "asked within 100 steps"
    for node in pair.nodes:
        report = node.ask("job", "uneven")
        named = report["straggler"]
        assert (named["rank"], named["node"], named["pid"]) == (2, job[2].node.name, job[2].pid)
        assert 0.012 < named["late_seconds"] < 0.2 and named["late_steps"] > named["recent_steps"] * 0.6, named
        ranks = {rank["rank"]: rank["steps"] for rank in report["ranks"]}
        for rank in (0, 1, 3):  # they wait for it about as long as they compute
            assert share(ranks[rank], "straggler") > 0.2, ranks
            assert share(ranks[rank], "straggler") > share(ranks[2], "straggler") + 0.15, ranks
        assert sum(ranks[2]["lateness"]) == ranks[2]["steps"]
    told = [event for event in job[2].node.ask("events")["events"] if event["event"] == "rank late"]
    assert [(event["about"]["job"], event["about"]["rank"]) for event in told] == [("uneven", "2")], told
    assert re.search(rf"rank 2 \(pid {job[2].pid}\) keeps others waiting: it was late by [\d.]+ ms in \d+ of its last \d+ "
                     r"steps, and is in state \w$", told[0]["text"])
    status, text, _ = pair.nodes[1].ctl("job", "uneven")
    assert status == 0, "to be slow is no fault"
    assert re.search(rf"straggler: rank 2 \(node {re.escape(job[2].node.name)}, pid {job[2].pid}\) was late by [\d.]+ ms "
                     r"in [\d.]+ % of the last \d+ steps; it is in state \w", text), text
    job.kill()


def test_where_all_are_alike_nobody_is_named(pair):
    job = pair.launch("even", STEPS, per_node=2, of_rank=slow())
    report = testbed.wait_until(lambda: steps_of(pair.nodes[0], "even", 30), 60, "30 steps")
    # A busy machine may make somebody late now and then, and by a little.
    assert report.get("straggler", {"late_seconds": 0})["late_seconds"] < 0.015
    for rank in report["ranks"]:
        mean = rank["steps"]["mean_seconds"]
        assert mean["compute"] > 0.019 and mean["input"] == 0, "what it sleeps between ops"
        assert mean["exposed"] > 0
    assert "where the time of a step goes" in pair.nodes[0].ctl("job", "even")[1]
    job.kill()


def test_a_daemon_is_asked_through_another(pair):
    first, second = pair.nodes
    status, text, _ = first.ctl("--node", second.name, "status")
    assert status == 0 and second.name in text
    status, _, complaint = first.ctl("--node", "nobody", "status")
    assert status == 1 and "not connected with a node nobody" in complaint
    for words in (["flight-recorder"], ["trace", "stop"], ["bandwidth"], ["support-bundle"]):
        status, _, complaint = first.ctl("--node", second.name, *words)
        assert status == 2 and "leave out --node" in complaint


@pytest.mark.parametrize("grace", [None, "20s"], ids=["for good", "and may come back"])
def test_a_daemon_that_dies_while_it_is_asked_is_named(make_cluster, grace):
    ring = make_cluster(2, settings={"restart-grace": grace} if grace else {}).start(kept=[1] if grace else ())
    first, second = ring.nodes
    os.kill(second.daemon_pid(), signal.SIGSTOP)
    asked = subprocess.Popen([first.program("gradringctl"), "--runtime-dir", first.runtime_dir, "--node", second.name, "status"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(0.5)
    os.kill(second.daemon_pid(), signal.SIGKILL)
    _, complaint = asked.communicate(timeout=20)
    assert asked.returncode == 3 and f"node {second.name} went before it answered: " in complaint, complaint
    if grace:
        second.wait_ready(1)  # one that is told to end between two lives leaves the sockets of the first
