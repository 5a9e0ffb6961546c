"""What happened, as gradringctl events tells it: here, everywhere, and while it goes on."""

import json
import signal
import subprocess
import time

from checks import TRAINER, run_job, wait_for_all

import cluster as testbed


def kinds(answer, node=None):
    return [one["event"] for one in answer["events"] if node in (None, one["node"])]


def test_a_job_a_death_and_a_reload_are_told(make_cluster):
    pair = make_cluster(2).start()
    first = pair.nodes[0]
    run_job(pair, "good", "--ops", "3")
    job = pair.launch("bad", [TRAINER, "--ops", "100000", "--delay-ms", "2"])
    wait_for_all(job, "done", 2)
    job[1].signal(signal.SIGKILL)
    job.wait(30)
    first.daemon.signal(signal.SIGHUP)
    testbed.wait_until(lambda: "configuration reread" in kinds(first.ask("events")), 20, "it was reread")
    here = first.ask("events")
    assert here["healthy"]
    for kind in ("ready", "peer up", "job formed", "job ended", "job failed"):
        assert kind in kinds(here), (kind, kinds(here))
    formed = [one for one in here["events"] if one["event"] == "job formed"]
    assert [one["about"]["job"] for one in formed] == ["good", "bad"]
    assert [one["number"] for one in here["events"]] == list(range(1, len(here["events"]) + 1))
    there = pair.nodes[1].ask("events")
    died = next(one for one in there["events"] if one["event"] == "trainer died")
    assert died["about"]["rank"] == "1" and died["about"]["job"] == "bad" and "signal 9" in died["text"]
    assert died["text"].startswith("job bad: trainer rank 1 (pid "), died

    everywhere = first.ask("events", "--all")
    assert {one["node"] for one in everywhere["events"]} == {"n0", "n1"}
    ages = [one["age_seconds"] for one in everywhere["events"]]
    assert ages == sorted(ages, reverse=True)
    assert first.ask("--node", "n1", "events")["events"][0]["node"] == "n1"
    assert first.ask("events", "--since", "0s")["events"] == []
    assert kinds(first.ask("events", "--since", "1h")) == kinds(here)
    status, out, _ = first.ctl("events")
    assert status == 0 and "job formed" in out and ("ago" in out or "just now" in out)


def test_a_death_has_the_name_of_a_job_that_forms_or_has_failed(make_cluster):
    pair = make_cluster(2).start()
    early = pair.start_trainer("early", [TRAINER], pair.nodes[0], 0, 2)
    testbed.wait_until(lambda: pair.nodes[0].ask("jobs")["jobs"], 20, "it forms")
    early.kill()
    late = pair.launch("late", [TRAINER, "--ops", "100000", "--delay-ms", "2"])
    wait_for_all(late, "done", 2)
    late[0].signal(signal.SIGSTOP)  # or it ends by itself when it is told of the other's death
    late[1].kill()
    testbed.wait_until(lambda: "job failed" in kinds(pair.nodes[0].ask("events")), 20, "it has failed")
    late[0].kill()

    def deaths():
        told = [one for one in pair.nodes[0].ask("events")["events"] if one["event"] == "trainer died"]
        return told if len(told) == 2 else None

    told = testbed.wait_until(deaths, 20, "both deaths are told")
    assert [one["about"]["job"] for one in told] == ["early", "late"], told
    assert [one["text"].split(": ")[0] for one in told] == ["job early", "job late"], told


def test_a_peer_that_goes_and_comes_is_told(make_cluster):
    pair = make_cluster(2).start()
    first, second = pair.nodes
    second.stop()
    testbed.wait_until(lambda: "peer stopped" in kinds(first.ask("events")), 30, "n1 is gone")
    follower = testbed.Process("follower", [pair.program("gradringctl"), "--runtime-dir", first.runtime_dir, "events", "--follow",
                                            "--all", "--since", "0s"], pair.folder, pair.mark)
    testbed.wait_until(lambda: "node n1 is stopped and was not asked: " in follower.complains(), 20, "it says that nobody tells of n1")
    follower.kill()
    second.run_daemon()
    second.wait_ready(1)
    testbed.wait_until(lambda: kinds(first.ask("events"))[-1] == "peer up", 30, "n1 is back")


def test_follow_ends_when_nobody_reads_it_though_nothing_happens(single):
    node = single.nodes[0]
    with subprocess.Popen([node.program("gradringctl"), "--runtime-dir", node.runtime_dir, "events", "--follow"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        try:
            follower.stdout.close()
            assert follower.wait(10) == 1 and "cannot write what happened" in follower.stderr.read()
        finally:
            follower.kill()


def test_follow_tells_what_comes(pair, tmp_path):
    path = tmp_path / "events"
    node = pair.nodes[0]
    with path.open("w") as out:
        follower = subprocess.Popen([node.program("gradringctl"), "--runtime-dir", node.runtime_dir, "--json", "events",
                                     "--follow", "--all", "--since", "0s"], stdout=out)
    try:
        def seen(job):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            return {(one["node"], one["event"]) for one in lines if one["about"].get("job") == job}
        wanted = {(f"n{index}", kind) for index in (0, 1) for kind in ("job formed", "job ended")}
        # The first may be over before it follows.
        names = iter(f"seen-{number}" for number in range(20))

        def next_is_seen():
            name = next(names)
            run_job(pair, name, "--ops", "3")
            deadline = time.monotonic() + 5
            while not seen(name) >= wanted and time.monotonic() < deadline:
                time.sleep(0.1)
            return seen(name) >= wanted
        testbed.wait_until(next_is_seen, 60, "all of it is told")
    finally:
        follower.kill()
        follower.wait()


def test_nonsense_is_refused(pair):
    for words, complaint in ((["--since", "soon"], "--since takes an age"), (["today"], "a word too many"), (["--last"], "last")):
        status, _, said = pair.nodes[0].ctl("events", *words)
        assert status == 2 and complaint in said, (words, said)
    status, _, said = pair.nodes[0].ctl("--node", "n1", "events", "--all")
    assert status == 2 and "choose" in said
    status, _, said = pair.nodes[0].ctl("--node", "n9", "events")
    assert status == 1 and "n9" in said
