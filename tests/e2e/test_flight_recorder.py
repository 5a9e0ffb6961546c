"""What a daemon did last can be read from its file: while it lives, after it was killed, after it was started again."""

import os
import signal

from checks import TRAINER, run_job, wait_failed, wait_for
from cluster import wait_until


def recorded(node, *words):
    """(exit status, the lives) of gradringctl flight-recorder."""
    status, _out, err = node.ctl("flight-recorder", *words)
    assert status in (0, 1), (status, err)
    return status, node.ask("flight-recorder", *words)["lives"]


def of(life, event, op=None):
    return [one for one in life["events"] if one["event"] == event and op in (None, one["op"])]


def place(life, event, op):
    """Where among the events of a life the first such stands."""
    return life["events"].index(of(life, event, op)[0])


def test_the_last_op_of_a_killed_daemon_is_told(make_cluster):
    """A rank keeps op 3 waiting; then the daemon of its node is killed, and nobody but its file is left to ask."""
    cluster = make_cluster(2).start()
    job = cluster.launch("crash", [TRAINER, "--ops", "10", "--count", "200000"], per_node=2,
                         of_rank={3: ["--at", "3", "--act", "hang"]})
    wait_for(job[3], "hanging")
    survivor, victim = cluster.nodes

    def waits_for_rank_3():
        status, (life,) = recorded(victim, "crash", "--last", "0")
        assert (status, life["state"]) == (0, "running")
        return of(life, "op submitted", "op 3") and of(life, "ready received", "op 3")
    wait_until(waits_for_rank_3, 20, "op 3 waits for rank 3 alone")

    victim.daemon.kill()
    for rank in (0, 1):
        wait_failed(job[rank], 10)
    status, (life,) = recorded(victim, "crash", "--last", "0")
    assert (status, life["state"], life["pid"], life["node"]) == (1, "died", victim.daemon.pid, victim.name)
    # An op that went its whole way, in order.
    way = ("op submitted", "ready sent", "op moves", "slice delivered", "op done")
    assert [place(life, one, "op 2") for one in way] == sorted(place(life, one, "op 2") for one in way), life
    assert {one["rank"] for one in of(life, "op submitted", "op 2")} == {2, 3}
    assert {one["who"] for one in of(life, "ready received", "op 2")} == {f"from {survivor.name}"}
    assert {one["detail"] for one in of(life, "op done", "op 2")} == {"OK"}
    for event in ("slice started", "slice landed", "slice forwarded"):
        assert of(life, event, "op 2"), event
    # The last one: who submitted it, who did not, and that nothing moved.
    assert [one["rank"] for one in of(life, "op submitted", "op 3")] == [2]
    assert of(life, "op submitted")[-1]["op"] == "op 3" and not of(life, "ready sent", "op 3")
    assert not of(life, "op moves", "op 3") and not of(life, "slice started", "op 3")

    # The other side saw the daemon go and the job end, in words.
    _status, (other,) = recorded(survivor, "--last", "0")
    assert [one["who"] for one in of(other, "peer lost")] == [f"node {victim.name}"]
    (failed,) = of(other, "job failed")
    assert failed["job"] == "crash" and failed["detail"].startswith("peer lost"), failed
    assert {one["rank"] for one in of(other, "op failed", "op 3")} == {0, 1}

    # A daemon in its place leaves it to be read.
    for trainer in job:
        trainer.kill()
    cluster.processes.append(victim.run_daemon())
    for node in cluster.nodes:
        node.wait_ready(1)
    run_job(cluster, "crash-again", "--ops", "2")
    status, (before, now) = recorded(victim, "--last", "0")
    assert (status, before["before"], now["before"]) == (0, True, False)
    assert (before["pid"], before["state"], now["state"]) == (life["pid"], "died", "running")
    assert of(before, "op submitted", "op 3") and of(now, "job ended")


def test_what_trainers_and_people_do_is_recorded(make_cluster):
    cluster = make_cluster(1).start()
    node = cluster.nodes[0]
    job = cluster.launch("people", [TRAINER, "--ops", "2"], per_node=2, of_rank={1: ["--at", "1", "--act", "hang"]})
    wait_for(job[1], "hanging")
    job[1].kill()
    wait_failed(job[0], 10)
    job.wait(10)
    node.daemon.signal(signal.SIGHUP)
    assert node.stop() is None
    status, (life,) = recorded(node, "--last", "0")
    assert (status, life["state"]) == (0, "stopped")
    assert {one["who"] for one in of(life, "trainer joins")} == {f"rank {one.rank}, pid {one.pid}" for one in job}
    lost = [one for one in of(life, "trainer lost") if one["rank"] == 1]
    assert [(one["who"], one["job"]) for one in lost] == [(f"rank 1, pid {job[1].pid}", "people")]
    # Before Linux 6.15, whoever is quick to reap it leaves nobody else the time to see by what it died.
    old_kernel = tuple(map(int, os.uname().release.split(".")[:2])) < (6, 15)
    assert lost[0]["detail"] == "killed by signal 9 (SIGKILL)" or (
        old_kernel and lost[0]["detail"] == "the process ended"), lost
    assert [one["detail"].split(",")[0] for one in of(life, "signal")] == ["signal 1", "signal 15"]
    assert life["events"][0]["event"] == "daemon started" and life["events"][-1]["event"] == "daemon stopped"
    status, out, err = node.ctl("flight-recorder", "nosuch")
    assert (status, out) == (1, "") and "people" in err
