"""What can be set of a running job, on all its nodes."""

import os
import signal

from checks import TRAINER, child_of, wait_for_all
from cluster import wait_until

ENDLESS = [TRAINER, "--ops", "100000", "--delay-ms", "5", "--count", "300001"]


def test_a_weight_reaches_all_nodes_and_is_shown(pair):
    job = pair.launch("heavy", ENDLESS)
    other = pair.launch("light", ENDLESS)
    wait_for_all(job, "done", 2)
    wait_for_all(other, "done", 2)
    first, second = pair.nodes
    assert first.ask("job", "heavy")["weight"] == 1
    told = first.ask("set", "heavy", "weight=4")
    assert told["healthy"]
    assert [(one["node"], one["before"], one["now"]) for one in told["nodes"]] == [("n0", "1", "4"), ("n1", "1", "4")]
    for node in (first, second):
        assert {one["name"]: one["weight"] for one in node.ask("jobs")["jobs"] if one["state"] == "running"} == {
            "heavy": 4, "light": 1}
        assert "weight 4" in node.ctl("job", "heavy")[1]
        assert "weight set" in [one["event"] for one in node.ask("events")["events"]]
    so_far = max(int(one.says().count("done")) for one in job)
    wait_for_all(job, "done", so_far + 20)  # both go on, the light one too
    wait_for_all(other, "done", so_far + 5)
    status, out, _ = second.ctl("set", "heavy", "weight=1")
    assert status == 0 and "n1" in out and "n0" in out
    for one in (job, other):
        one.kill()


def test_a_weight_outlives_the_daemon(make_cluster):
    pair = make_cluster(2, settings={"restart-grace": "20s"}).start(kept=[0, 1])
    job = pair.launch("heavy", ENDLESS)
    wait_for_all(job, "done", 2)
    first = pair.nodes[0]
    assert first.ask("set", "heavy", "weight=7")["healthy"]
    wait_for_all(job, "done", 20)
    old = child_of(first)
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: (first.ask("status", missing_ok=True) or {"pid": old})["pid"] != old, 20, "the next daemon is there")
    wait_until(lambda: "took over" in first.log(), 20, "and has the job")
    assert first.ask("job", "heavy")["weight"] == 7
    for one in job:
        one.kill()


def test_what_cannot_be_set_is_refused_in_words(pair):
    job = pair.launch("plain", ENDLESS)
    wait_for_all(job, "done", 2)
    node = pair.nodes[0]
    for words, complaint in ((["plain", "speed=9"], "what can be set: weight"), (["plain", "weight=0"], "from 1 to 100"),
                             (["plain", "weight=101"], "from 1 to 100"), (["plain", "weight=2.5"], "whole number"),
                             (["plain", "weight="], "whole number"), (["plain", "weight"], "NAME=VALUE"),
                             (["plain"], "a job and what to set"), ([], "a job and what to set"),
                             (["plain", "=3"], "NAME=VALUE")):
        status, _, said = node.ctl("set", *words)
        assert status == 2 and complaint in said, (words, said)
    status, _, said = node.ctl("set", "nobody", "weight=2")
    assert status == 1 and "no job nobody runs on any of the 2 nodes" in said
    assert node.ctl("--node", "n1", "set", "plain", "weight=2")[0] == 2
    assert node.ask("job", "plain")["weight"] == 1
    job.kill()
