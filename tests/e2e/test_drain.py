"""A drain that is asked for: of this node, of another, watched, cut short, taken back."""

import json
import os
import re
import signal
import subprocess
import time

from checks import DRAINED, TRAINER, child_of, run_job, wait_failed, wait_for_all
from monitor import Monitored

import cluster as testbed

ENDLESS = [TRAINER, "--ops", "100000", "--delay-ms", "5"]


def start_drain(node, *words):
    """gradringctl drain, in the background."""
    return subprocess.Popen([node.program("gradringctl"), "--runtime-dir", node.runtime_dir, "--json", "drain", *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end_of(drain, seconds=40):
    out, err = drain.communicate(timeout=seconds)
    return drain.returncode, json.loads(out) if out else None, err


def draining(node):
    return node.ask("status")["state"] == "draining"


def is_pending(pid, number):
    """Whether a signal to the process waits to be read."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        pending = next(line.split()[1] for line in status if line.startswith("ShdPnd:"))
    return bool(int(pending, 16) >> (number - 1) & 1)


def test_an_idle_node_is_drained_at_once(make_cluster):
    single = make_cluster(1).start()
    status, out, err = single.nodes[0].ctl("drain")
    assert status == 0 and "node n0 has drained and stopped" in out, (out, err)
    assert single.nodes[0].daemon.wait(10) == 0
    status, _, said = single.nodes[0].ctl("drain")
    assert status == 3 and "no gradringd" in said


def test_others_show_that_a_node_was_stopped_and_find_nothing_wrong(make_cluster):
    watched = Monitored(make_cluster(2, network=testbed.Loopback), watch=False)
    pair = watched.cluster
    first, second = pair.nodes
    assert second.ctl("drain")[0] == 0
    (peer,) = testbed.wait_until(lambda: first.peers("stopped"), 20, "n0 shows n1 as stopped")
    assert peer["reason"] == "its daemon was stopped, or drained", peer
    for command in ("peers", "status", "topology"):
        status, out, err = first.ctl(command)
        assert status == 0, (command, out, err)
    assert first.ask("status")["peers_stopped"] == 1
    told = [one["event"] for one in first.ask("events")["events"]]
    assert "peer stopped" in told and not {"peer lost", "peer away"} & set(told), told

    def stopped():
        page = watched.page()
        return 'gradring_peers{node="n0",state="stopped"} 1' in page and page
    page = testbed.wait_until(stopped, 20, "n0's metrics show n1 as stopped")
    assert re.findall(r"(?m)^gradring_peer_losses_total{.*} (\d+)$", page) == ["0", "0"]  # else there would be alerts

    pair.processes.append(second.run_daemon())
    testbed.wait_until(lambda: first.peers("up"), 20, "n1 is back")
    run_job(pair, "again", "--ops", "5")
    second.daemon.kill()
    testbed.wait_until(lambda: first.peers("lost") or first.peers("away"), 20, "n0 does not take a death for more than it is")


def test_a_drain_waits_for_jobs_and_takes_no_new_ones(make_cluster):
    pair = make_cluster(2).start()
    job = pair.launch("going", [TRAINER, "--ops", "300", "--delay-ms", "10"])
    wait_for_all(job, "done", 2)
    first = pair.nodes[0]
    drain = start_drain(first, "--timeout", "120")
    testbed.wait_until(lambda: draining(first), 20, "it drains")
    late = pair.launch("late", [TRAINER, "--ops", "1"], nodes=[first])
    assert late.wait(20) != [0]
    assert "takes no new jobs" in late[0].says() + late[0].complains()
    assert job.wait(60) == [0, 0], [one.says()[-800:] for one in job]
    status, told, said = end_of(drain)
    assert status == 0 and told["result"] == "drained" and told["jobs_cut_off"] == [], (told, said)
    assert "1 job left (going)" in said
    assert first.daemon.wait(10) == 0


def test_a_drain_ends_when_its_time_is_over(make_cluster):
    pair = make_cluster(2).start()
    job = pair.launch("endless", ENDLESS)
    wait_for_all(job, "done", 2)
    status, told, said = end_of(start_drain(pair.nodes[1], "--timeout", "1"))
    assert status == 1 and told["result"] == "stopped" and told["jobs_cut_off"] == ["endless"], (told, said)
    assert wait_failed(job[0], 20).get("cause", DRAINED) == DRAINED
    assert pair.nodes[1].daemon.wait(10) == 0
    job.wait(20)


def test_another_node_is_drained_from_here(make_cluster):
    pair = make_cluster(2).start()
    status, told, said = end_of(start_drain(pair.nodes[0], "--node", "n1"))
    assert status == 0 and told["node"] == "n1" and told["result"] == "drained", (told, said)
    assert pair.nodes[1].daemon.wait(10) == 0
    assert pair.nodes[0].ask("status")["state"] == "ready"
    status, _, said = pair.nodes[0].ctl("--node", "n7", "drain")
    assert status == 1 and "n7" in said


def test_a_node_that_stands_still_is_not_gone(make_cluster):
    """People switch a node off when its drain is said to be over: longer than one question waits, below `decide`."""
    pair = make_cluster(2).start()
    job = pair.launch("going", ENDLESS)
    wait_for_all(job, "done", 2)
    drain = start_drain(pair.nodes[0], "--node", "n1", "--timeout", "6")
    testbed.wait_until(lambda: draining(pair.nodes[1]), 20, "it drains")
    pair.nodes[1].daemon.signal(signal.SIGSTOP)
    time.sleep(2.5)
    pair.nodes[1].daemon.signal(signal.SIGCONT)
    status, told, said = end_of(drain)
    assert status == 1 and told["result"] == "stopped" and told["jobs_cut_off"] == ["going"], (told, said)
    assert pair.nodes[1].daemon.wait(10) == 0
    job.wait(20)


def test_one_that_is_not_answered_may_still_come_about_and_that_is_said(make_cluster):
    pair = make_cluster(2).start()
    first, second = pair.nodes
    job = pair.launch("goes-on", [TRAINER, "--ops", "1000000", "--delay-ms", "20"], nodes=[second])
    wait_for_all(job, "done")
    second.daemon.signal(signal.SIGSTOP)
    status, _, complaint = first.ctl("--node", "n1", "drain", "--timeout", "60")
    second.daemon.signal(signal.SIGCONT)
    assert status == 3 and "did not answer" in complaint and "may still drain when it goes on" in complaint, complaint
    testbed.wait_until(lambda: draining(second), 10, "it drains all the same")
    status, _, complaint = first.ctl("--node", "n1", "drain", "--cancel")
    assert status == 0 and not draining(second), complaint
    job.kill()


def test_a_drain_that_nobody_can_ask_of_goes_on(make_cluster):
    pair = make_cluster(2).start()
    job = pair.launch("going", ENDLESS, nodes=[pair.nodes[1]])
    wait_for_all(job, "done", 2)
    drain = start_drain(pair.nodes[0], "--node", "n1", "--timeout", "60")
    testbed.wait_until(lambda: draining(pair.nodes[1]), 20, "it drains")
    pair.nodes[0].daemon.signal(signal.SIGKILL)
    status, told, said = end_of(drain)
    assert status == 1 and told["result"] == "unanswered", (told, said)
    assert "nobody listens" in told["problems"][0] and draining(pair.nodes[1])
    job.kill()


def test_a_drain_can_be_taken_back(make_cluster):
    single = make_cluster(1).start()
    node = single.nodes[0]
    job = single.launch("kept", ENDLESS)
    wait_for_all(job, "done", 2)
    drain = start_drain(node, "--timeout", "300")
    testbed.wait_until(lambda: draining(node), 20, "it drains")
    status, out, _ = node.ctl("drain", "--cancel")
    assert status == 0 and "takes jobs again" in out
    status, told, _ = end_of(drain)
    assert status == 1 and told["result"] == "cancelled"
    assert node.ask("status")["state"] == "ready"
    assert job[0].running()
    run_job(single, "new", "--ops", "3")
    status, _, said = node.ctl("drain", "--cancel")
    assert status == 1 and "nothing to cancel" in said
    job.kill()


def test_a_daemon_that_is_started_anew_has_forgotten_its_drain(make_cluster):
    single = make_cluster(1, settings={"restart-grace": "10s"}).start(kept=[0])
    node = single.nodes[0]
    job = single.launch("kept", ENDLESS)
    wait_for_all(job, "done", 2)
    drain = start_drain(node, "--timeout", "300")
    testbed.wait_until(lambda: draining(node), 20, "it drains")
    os.kill(child_of(node), signal.SIGKILL)
    status, told, _ = end_of(drain)
    assert status == 1 and told["result"] == "forgotten" and "was started anew" in told["problems"][0], told
    job.kill()


def test_the_drain_of_a_signal_cannot_be_taken_back(make_cluster):
    single = make_cluster(1, settings={"drain-timeout": "60s"}).start()
    node = single.nodes[0]
    job = single.launch("kept", ENDLESS)
    wait_for_all(job, "done", 2)
    drain = start_drain(node, "--timeout", "300")
    testbed.wait_until(lambda: draining(node), 20, "it drains")
    node.daemon.signal(signal.SIGTERM)  # the first: it drains on
    testbed.wait_until(lambda: not is_pending(node.daemon.pid, signal.SIGTERM), 20, "the signal is read")
    status, _, said = node.ctl("drain", "--cancel")
    assert status == 1 and "cannot be taken back" in said
    assert node.daemon.running() and job[0].running()
    node.daemon.signal(signal.SIGTERM)
    status, told, _ = end_of(drain)
    assert status == 1 and told["result"] == "stopped" and told["jobs_cut_off"] == ["kept"]
    assert node.daemon.wait(10) == 0
    job.wait(20)


def test_nonsense_is_refused(pair):
    for words, complaint in ((["--timeout", "x"], "timeout"), (["--timeout", "-2"], "0 to"), (["now"], "a word too many"),
                             (["--cancel", "--timeout", "3"], "--cancel")):
        status, _, said = pair.nodes[0].ctl("drain", *words)
        assert status == 2 and complaint in said, (words, said)


def test_a_signal_to_keeper_and_daemon_is_one(make_cluster):
    """As `pkill gradringd` sends it, or whoever ends all of a cgroup: the keeper passes its own on, which is no second."""
    single = make_cluster(1, settings={"drain-timeout": "60s"}).start(kept=[0])
    node = single.nodes[0]
    job = single.launch("kept", ENDLESS)
    wait_for_all(job, "done", 2)
    os.kill(child_of(node), signal.SIGTERM)
    testbed.wait_until(lambda: draining(node), 20, "it drains")
    node.daemon.signal(signal.SIGTERM)
    time.sleep(1.5)
    assert draining(node) and job[0].running(), "the signal that the keeper passed on cut the job off"
    node.daemon.signal(signal.SIGTERM)  # and that is the second
    assert wait_failed(job[0], 20).get("cause", DRAINED) == DRAINED
    assert node.daemon.wait(10) == 0
