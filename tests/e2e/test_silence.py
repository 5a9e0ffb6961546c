"""Somebody is silent: a stopped trainer is waited for and shown, an unplugged node is given up and named."""

import signal
import time

from checks import (DEADLINE, DRAINED, EXCLUDED, PEER_SILENT, TRAINER, assert_blames, events, run_job, wait_failed,
                    wait_for, wait_for_all)
import pytest
from cluster import state_of, wait_until

STOPPED_SECONDS = 10  # beyond `decide`: a stopped trainer is no fault, however long
SOON_AFTER_A_CUT = 20  # the contract says 5 s; see test_deaths.py


def test_stopped_trainer_is_shown_and_waited_for(pair):
    job = pair.launch("slow", [TRAINER, "--ops", "100000", "--delay-ms", "20"], per_node=2)
    wait_for_all(job, "done", 2)
    stopped = job[3]
    began = time.monotonic()
    stopped.signal(signal.SIGSTOP)
    try:
        for node in pair.nodes:  # asked anywhere, the answer is the same
            def shown(node=node):
                """Once the others have come to the op: until then they are waited for as well."""
                report = node.ask("job", "slow")
                waited = {(who.get("rank"), who["node"], who.get("pid"), who.get("process_state"))
                          for op in report["ops"] for who in op["waiting_for"]}
                return report if waited == {(3, "n1", stopped.pid, "T")} else None
            report = wait_until(shown, 10, f"{node.name} shows that rank 3, stopped, is waited for")
            assert not report["healthy"] and any("rank 3" in problem for problem in report["problems"])
            text = node.ctl("job", "slow")[1]
            assert f"pid {stopped.pid}" in text, text
        time.sleep(max(0, began + STOPPED_SECONDS - time.monotonic()))
        assert state_of(stopped.pid) == "T"
        so_far = len(events(job[0], "done"))
    finally:
        stopped.signal(signal.SIGCONT)
    wait_for_all(job, "done", so_far + 5)
    assert all(one["verdict"] == 1 and one["right"] for trainer in job for one in events(trainer, "done"))
    job.kill()


def test_op_that_a_rank_never_submits_ends_at_its_deadline(make_cluster):
    cluster = make_cluster(2, settings={"op-deadline": "2s"}).start()
    job = cluster.launch("never", [TRAINER, "--ops", "5"], per_node=2, of_rank={2: ["--at", "1", "--act", "hang"]})
    for trainer in job:
        if trainer is not job[2]:
            told = wait_failed(trainer, 20)
            assert told["op"] == 1
            assert_blames(told, job[2], DEADLINE)
    job.kill()


def test_cut_link(make_cluster, namespaces, figure):
    """The unplugged node's ranks and all others are told; both sides name the silence; a mended link serves again."""
    cluster = make_cluster(4, network=namespaces).start()
    run_job(cluster, "warm-up", "--ops", "2")
    job = cluster.launch("cut", [TRAINER, "--ops", "100000", "--delay-ms", "2"], per_node=2)
    wait_for_all(job, "done", 5)
    moment = time.monotonic()
    cluster.network.cut(2)
    lone = cluster.nodes[2]
    told = {trainer: wait_failed(trainer, SOON_AFTER_A_CUT) for trainer in job}
    for trainer, one in told.items():
        assert one.get("cause", PEER_SILENT) == PEER_SILENT, one
        blamed = ("n0", "n1", "n3") if trainer.node is lone else ("n2",)
        assert any(f"node {name}" in one["message"] for name in blamed), one
    figure(f"link cut: all 8 ranks told within {max(one['time'] for one in told.values()) - moment:.2f} s")
    assert job.wait(10) == [1] * 8
    for node in cluster.nodes:
        if node is not lone:
            assert [(peer["node"], bool(peer["reason"])) for peer in node.peers() if peer["state"] != "up"] == [
                ("n2", True)]
    run_job(cluster, "without", "--ops", "3", nodes=[node for node in cluster.nodes if node is not lone])
    cluster.network.mend(2)
    for node in cluster.nodes:
        node.wait_ready(3, seconds=40)
    run_job(cluster, "cut", "--ops", "3", per_node=2)


INPUT = ("iptables", "-w", "-A", "INPUT", "-p", "tcp")


def without_data_ports(cluster, node):
    """A firewall lets the control port pass, and what comes to the other ports is lost without a word."""
    for what in ["--dport 7300 -j ACCEPT", "--sport 7300 -j ACCEPT", "-j DROP"]:
        cluster.network.inside(node, *INPUT, *what.split())


NEVER_HEARD = "nothing came by the data network (eth0 (TCP)) in the"


def test_a_firewall_before_the_data_ports_is_guessed(make_cluster, namespaces):
    cluster = make_cluster(2, network=namespaces)
    without_data_ports(cluster, 1)
    cluster.start_daemons()
    node = cluster.nodes[1]
    said = wait_until(lambda: [one for one in node.log(20).splitlines() if NEVER_HEARD in one], 15, "it is said")
    assert "let the data ports pass (docs/configure.md#ports)" in said[0], said


def test_who_is_met_and_cannot_be_reached_by_the_data_ports_is_tried_ever_more_seldom(make_cluster, namespaces):
    cluster = make_cluster(2, network=namespaces)
    for what in ["--dport 7300 -j ACCEPT", "--sport 7300 -j ACCEPT", "-j REJECT --reject-with tcp-reset"]:
        cluster.network.inside(1, *INPUT, *what.split())
    cluster.start_daemons()
    node = cluster.nodes[0]
    wait_until(lambda: "data connection: cannot connect to" in node.log(), 15, "it is said")
    time.sleep(8)
    assert node.log().count("is lost") <= 5, node.log()


def test_what_a_firewall_drops_is_not_called_refused(make_cluster, namespaces):
    cluster = make_cluster(2, network=namespaces)
    cluster.network.inside(1, *INPUT, "-j", "DROP")
    cluster.start_daemons()
    reasons = set()
    wait_until(lambda: cluster.nodes[0].peers() is not None, 10, "n0 answers")
    until = time.monotonic() + 12
    while time.monotonic() < until:
        reasons |= {peer.get("reason", "") for peer in cluster.nodes[0].peers()}
        time.sleep(0.1)
    assert reasons - {"not tried yet"} == {"no answer"}, reasons


@pytest.mark.parametrize("engine", ["sockets", "ucx"])
def test_a_firewall_lets_data_ports_pass_that_it_can_name(make_cluster, namespaces, engine):
    cluster = make_cluster(2, network=namespaces, settings={"data-ports": "7310-7311", "tcp-by": engine})
    for node in range(2):
        for ports in ("7300", "7310:7311"):
            for side in ("--dport", "--sport"):
                cluster.network.inside(node, *INPUT, side, ports, "-j", "ACCEPT")
        cluster.network.inside(node, *INPUT, "-j", "DROP")
    cluster.start()
    run_job(cluster, "named", "--ops", "5", per_node=2)
    assert cluster.nodes[1].stop() is None
    cluster.processes.append(cluster.nodes[1].run_daemon())
    for node in cluster.nodes:
        node.wait_ready(1)
    run_job(cluster, "again", "--ops", "5", per_node=2)


def test_who_is_given_up_says_what_it_saw_itself(make_cluster, namespaces):
    """Both ends hear nothing, and one has less patience."""
    cluster = make_cluster(2, network=namespaces)
    cluster.configure(cluster.nodes[0], decide="20s")
    without_data_ports(cluster, 1)
    cluster.start()
    told = wait_failed(cluster.launch("given-up", [TRAINER, "--ops", "5"])[0], SOON_AFTER_A_CUT)
    assert "node n1" in told["message"] and f"; seen from here: {NEVER_HEARD}" in told["message"], told


def test_stopped_daemon_is_silent_to_the_others(make_cluster):
    """A frozen host looks like this: its connections stay open and nothing comes."""
    cluster = make_cluster(3).start()
    job = cluster.launch("frozen", [TRAINER, "--ops", "100000", "--delay-ms", "2"])
    wait_for_all(job, "done", 5)
    frozen = cluster.nodes[1]
    frozen.daemon.signal(signal.SIGSTOP)
    try:
        for trainer in (job[0], job[2]):
            told = wait_failed(trainer, SOON_AFTER_A_CUT)
            assert told.get("cause", PEER_SILENT) == PEER_SILENT and "node n1" in told["message"], told
    finally:
        frozen.daemon.signal(signal.SIGCONT)
    told = wait_failed(job[1], SOON_AFTER_A_CUT)
    assert told.get("cause", EXCLUDED) == EXCLUDED and "excluded: node n1" in told["message"], told
    for node in cluster.nodes:
        node.wait_ready(2, seconds=40)
    run_job(cluster, "frozen", "--ops", "3")


def test_drained_daemon_ends_its_jobs_in_words(make_cluster):
    cluster = make_cluster(2).start()
    job = cluster.launch("drain", [TRAINER, "--ops", "100000", "--delay-ms", "2"])
    wait_for_all(job, "done", 5)
    cluster.nodes[1].daemon.signal(signal.SIGTERM)
    told = [wait_failed(trainer, 20) for trainer in job]
    assert told[0].get("cause", DRAINED) == DRAINED and "node n1" in told[0]["message"], told[0]
    assert told[1].get("cause", DRAINED) == DRAINED and "told to stop" in told[1]["message"], told[1]
    assert job.wait(10) == [1, 1]
    assert cluster.nodes[1].daemon.wait(20) == 0
