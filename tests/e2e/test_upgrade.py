"""Daemons are killed under load and come back from their keepers: within the grace a pause, without one a death."""

import os
import signal
import time
from pathlib import Path

import pytest
from checks import (
    OK, OK_SHRUNK, PEER_LOST, TRAINER, TRAINER_DIED, assert_agreed, child_of, events, longest_step, run_job, wait_failed, wait_for,
    wait_for_all,
)
from cluster import children_of, wait_until

GRACE = ("--restart-grace", "10s")
COMING_BACK = 5.0  # the keeper pauses 0.2 s; the machine may be busy


def kept_cluster(make_cluster, nodes, *flags, **options):
    cluster = make_cluster(nodes, **options)
    for index, node in enumerate(cluster.nodes):
        cluster.processes.append(node.run_daemon("--keep", *flags))
        node.wait_ready(index)
    for node in cluster.nodes:
        node.wait_ready(nodes - 1)
    return cluster


def replace(node):
    """SIGKILL to the daemon; its keeper starts the next one, with what it kept."""
    old = child_of(node)
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: child_of(node) != old, COMING_BACK, f"{node.name} has another daemon")


def assert_untouched(job, ops, inputs=None):
    """`inputs`: that are in each result, if not one of every rank."""
    for trainer in job:
        ended = events(trainer, "done")
        assert [one["op"] for one in ended] == list(range(ops)), trainer.says()[-600:]
        assert all(one["verdict"] == OK and one["right"] and one["ranks"] == (inputs or len(job)) for one in ended), (
            trainer.name, [one for one in ended if one["verdict"] != OK or not one["right"]][:2])


@pytest.mark.parametrize("policy, collective, checksum", [
    ("fail", "allreduce", "off"), ("elastic", "allreduce", "on"), ("fail", "broadcast", "on"), ("fail", "barrier", "off")])
def test_a_killed_daemon_is_a_pause(make_cluster, figure, policy, collective, checksum):
    cluster = kept_cluster(make_cluster, 3, *GRACE, "--checksum", checksum)
    # The last rank is late each time, so that a daemon that is killed has an op open, whatever the collective.
    job = cluster.launch("upgraded", [TRAINER, "--policy", policy, "--collective", collective, "--ops", "150", "--count",
                                      "200000"],
                         per_node=2, of_rank={rank: ["--delay-ms", "10" if rank == 5 else "2"] for rank in range(6)})
    wait_for_all(job, "done", 20)
    for turn, node in enumerate(cluster.nodes):  # the whole ring, one by one
        replace(node)
        wait_for_all(job, "done", 50 + 30 * turn)
    assert job.wait(90) == [0] * 6, [one.says()[-600:] for one in job]
    assert_untouched(job, 150, inputs=1 if collective == "broadcast" else 6)
    figure(f"restart: 3 daemons killed one by one under load, policy {policy}, {collective}, checksum {checksum}: "
           f"0 ops failed, longest pause {longest_step(job):.2f} s")


def test_without_a_grace_the_same_is_a_death(make_cluster, figure):
    cluster = kept_cluster(make_cluster, 3)
    job = cluster.launch("dies", [TRAINER, "--ops", "100000", "--delay-ms", "5"], per_node=2)
    wait_for_all(job, "done", 10)
    began = time.monotonic()
    replace(cluster.nodes[1])
    others = [trainer for trainer in job if trainer.node is not cluster.nodes[1]]
    told = [wait_failed(trainer, 10) for trainer in job]
    late = max(one["time"] for one in told) - began
    for trainer in others:
        failed = wait_failed(trainer, 1)
        if failed["event"] == "refused":  # told between two ops
            assert "n1" in failed["message"], failed
            continue
        assert failed["cause"] in (PEER_LOST, TRAINER_DIED) and failed["blamed_node"] == "n1", failed
    assert late < 5.0  # ten times the bound
    figure(f"restart: no grace: 6 ranks told of the death within {late:.3f} s")
    for trainer in job:
        trainer.wait(20)
    run_job(cluster, "next", "--ops", "5", per_node=1)


def memory_kept_by(keeper):
    """Pieces of memory that would outlive the daemon: each is a file without a name that its keeper has open."""
    names = [os.readlink(fd) for fd in Path(f"/proc/{keeper.pid}/fd").iterdir()]
    return sum(name.startswith("/memfd:") for name in names)


@pytest.mark.parametrize("flags, kept", [((), 0), (GRACE, 3)], ids=["no grace", "grace"])
def test_what_nobody_would_go_on_with_is_not_written_down(make_cluster, flags, kept):
    """Records of slices have their price, and without a grace a restart ends the job anyway. What was promised to
    other daemons is kept in both cases."""
    cluster = kept_cluster(make_cluster, 2, *flags)
    keeper = cluster.nodes[0].daemon
    before = memory_kept_by(keeper)
    assert before == 1
    job = cluster.launch("priced", [TRAINER, "--ops", "100000", "--delay-ms", "5"])
    wait_for_all(job, "done", 5)
    segments = memory_kept_by(keeper) - before - kept
    assert segments == 0 if not flags else segments > 0
    for trainer in job:
        trainer.kill()
        trainer.wait(20)


def test_a_trainer_that_computes_meanwhile_notices_nothing(make_cluster):
    """It comes back to a daemon that was replaced while it was not looking, later than the grace."""
    cluster = kept_cluster(make_cluster, 2, "--restart-grace", "1s")
    job = cluster.launch("computes", [TRAINER, "--ops", "3"], of_rank={1: ["--delay-ms", "6000"]})
    wait_for_all(job, "done", 1)

    def rank_1():
        report = cluster.nodes[1].ask("job", "computes", missing_ok=True) or {"ranks": []}
        return next((rank for rank in report["ranks"] if rank["rank"] == 1), None)

    before = rank_1()["ops_submitted"]
    time.sleep(0.3)
    replace(cluster.nodes[1])
    wait_until(lambda: (now := rank_1()) and now["ops_submitted"] == before and now["quiet_seconds"] > 0.3, COMING_BACK,
               "the next daemon shows for how long the rank has been quiet")
    assert job.wait(60) == [0] * 2, [one.says()[-600:] for one in job]
    assert_untouched(job, 3)


@pytest.mark.parametrize("limit", ["--max-sessions", "--sessions-per-uid"])
def test_trainers_come_back_to_a_node_that_is_full(make_cluster, limit):
    """Each has a place already, and needs another until it has said who it was."""
    cluster = kept_cluster(make_cluster, 1, *GRACE, limit, "2")
    job = cluster.launch("full", [TRAINER, "--ops", "100", "--delay-ms", "10"], per_node=2)
    wait_for_all(job, "done", 20)
    replace(cluster.nodes[0])
    assert job.wait(60) == [0] * 2, [one.says()[-600:] for one in job]
    assert_untouched(job, 100)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a pid namespace, which only root may")
def test_trainers_whose_pids_are_not_seen_come_back(make_cluster):
    """To a daemon in a container of its own, which cannot look whether they still run."""
    cluster = make_cluster(1)
    node = cluster.nodes[0]
    outside = node.prefix
    node.prefix = [*outside, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    cluster.processes.append(node.run_daemon("--keep", *GRACE))
    node.prefix = outside
    node.wait_ready(0)
    [keeper] = children_of(node.daemon.pid)
    [daemon] = children_of(keeper)
    job = cluster.launch("unseen", [TRAINER, "--ops", "100", "--delay-ms", "10"], per_node=2)
    wait_for_all(job, "done", 20)
    os.kill(daemon, signal.SIGKILL)
    wait_for_all(job, "done", 50)
    assert children_of(keeper) != [daemon]
    assert job.wait(60) == [0] * 2, [one.says()[-600:] for one in job]
    assert_untouched(job, 100)
    # Who dies then is told by the end of its process, as before.
    job = cluster.launch("dies", [TRAINER, "--ops", "100000", "--delay-ms", "2"], per_node=2)
    wait_for_all(job, "done", 20)
    before = children_of(keeper)
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: children_of(keeper) not in ([], before), COMING_BACK, "the next daemon is there")
    wait_for_all(job, "done", 100)
    job[0].kill()
    assert wait_failed(job[1], 10)["cause"] == TRAINER_DIED
    job[1].wait(20)
    os.kill(keeper, signal.SIGTERM)  # unshare passes nothing on
    node.daemon.wait(15)


def test_a_daemon_that_does_not_come_back_is_lost_after_the_grace(make_cluster, figure):
    cluster = kept_cluster(make_cluster, 3, "--restart-grace", "2s")
    job = cluster.launch("lost", [TRAINER, "--ops", "100000", "--delay-ms", "5"])
    wait_for_all(job, "done", 10)
    began = time.monotonic()
    cluster.nodes[2].daemon.kill()  # the keeper, and the daemon with it
    def peer():
        return next(one for one in cluster.nodes[0].ask("peers")["peers"] if one["node"] == "n2")
    wait_until(lambda: peer()["state"] == "away", 5, "n0 waits for n2")
    assert "expected back within" in peer()["reason"]
    told = [wait_failed(trainer, 30) for trainer in list(job)[:2]]
    assert all(one["cause"] == PEER_LOST and one["blamed_node"] == "n2" and "come back" in one["message"] for one in told)
    late = max(one["time"] for one in told) - began
    assert 1.9 < late < 20
    figure(f"restart: one that does not come back: told {late - 2.0:.2f} s after its grace of 2 s")
    wait_failed(job[2], 30)
    for trainer in job:
        trainer.wait(20)


def test_the_lower_of_two_nodes_dies_and_its_host_speaks_for_it(make_cluster, figure):
    """Alone, the higher one could not decide. The next daemon on the lower one has the promises of the last."""
    cluster = kept_cluster(make_cluster, 2)
    job = cluster.launch("witness", [TRAINER, "--policy", "elastic", "--ops", "200", "--join-every", "5",
                                     "--delay-ms", "10"])
    wait_for_all(job, "done", 20)
    replace(cluster.nodes[0])
    assert job[1].wait(60) == 0, job[1].says()[-600:]
    ended = events(job[1], "done")
    assert [one["op"] for one in ended] == list(range(200))
    assert all(one["verdict"] in (OK, OK_SHRUNK) and one["right"] for one in ended) and ended[-1]["ranks"] == 1
    figure(f"restart: two nodes, the lower one's daemon killed: the other goes on alone after {longest_step([job[1]]):.2f} s")
    job[0].wait(30)


def test_killed_again_and_again(make_cluster, figure):
    cluster = kept_cluster(make_cluster, 3, *GRACE)
    job = cluster.launch("again", [TRAINER, "--ops", "300", "--count", "300000", "--delay-ms", "1"], per_node=2)
    wait_for_all(job, "done", 10)
    kills = 0
    while all(trainer.running() for trainer in job) and kills < 9:  # a keeper gives its daemon pauses
        replace(cluster.nodes[kills * 2 % 3])
        kills += 1
        time.sleep(0.1 * (kills % 5))
    assert job.wait(120) == [0] * 6, [one.says()[-600:] for one in job]
    assert_untouched(job, 300)
    figure(f"restart: {kills} daemons killed while 300 ops of 1.2 MB ran: 0 failed")


def test_what_a_dead_trainer_submitted_still_counts_in_the_next_life(make_cluster):
    cluster = kept_cluster(make_cluster, 4, *GRACE)
    job = cluster.launch("last-will", [TRAINER, "--policy", "elastic", "--ops", "60", "--join-every", "5",
                                       "--delay-ms", "4", "--count", "50000"],
                         per_node=2, of_rank={2: ["--at", "22", "--act", "submit-and-hang"],
                                              7: ["--at", "22", "--act", "hang"]})
    wait_for_all([trainer for trainer in job if trainer is not job[7]], "submitted", 22)
    job[2].signal(signal.SIGKILL)
    time.sleep(0.5)  # the others have agreed on a view without it
    replace(cluster.nodes[1])
    time.sleep(1.0)
    job[7].kill()  # the one that all waited for
    assert job.wait(60) == [0, 0, -9, 0, 0, 0, 0, -9], [one.says()[-600:] for one in job]
    seen = assert_agreed([trainer for trainer in job if trainer not in (job[2], job[7])])
    assert seen[22][:3] == (OK_SHRUNK, 7, 7) and seen[59][:3] == (OK, 6, 6)
    assert events(job[0], "done", 22)[0]["contributors"] == [[0, 1, 2, 3, 4, 5, 6]]


def test_a_daemon_whose_node_has_just_come_in_is_killed(make_cluster):
    cluster = kept_cluster(make_cluster, 3, *GRACE)
    words = [TRAINER, "--policy", "elastic", "--ops", "200", "--join-every", "5", "--delay-ms", "10"]
    job = cluster.launch("guest", words)
    wait_for_all(job, "done", 20)
    job[2].kill()
    survivors = list(job)[:2]
    wait_for_all(survivors, "done", 60)  # without that node, by now
    again = cluster.start_trainer("guest", words, cluster.nodes[2], 2, 3)
    wait_for(again, "state", seconds=30)
    replace(cluster.nodes[2])
    assert [one.wait(60) for one in [*survivors, again]] == [0] * 3, [one.says()[-600:] for one in [*survivors, again]]
    seen = assert_agreed([*survivors, again])
    assert seen[199][:3] == (OK, 3, 3)


def test_a_rank_that_comes_back_as_another_process_is_told_its_own_ends(make_cluster):
    """It counts its submissions from one again, and a kept daemon remembers the ends of those before it."""
    cluster = kept_cluster(make_cluster, 2)
    words = [TRAINER, "--policy", "elastic", "--ops", "200", "--join-every", "5", "--delay-ms", "10"]
    job = cluster.launch("returns", words, per_node=2)
    wait_for_all(job, "done", 30)
    job[3].kill()
    wait_for_all(job[:3], "done", 60)
    job.trainers[3] = cluster.start_trainer("returns", words, cluster.nodes[1], 3, 4)
    assert [one.wait(60) for one in job] == [0] * 4, [one.says()[-600:] for one in job]
    assert assert_agreed(job)[199][:3] == (OK, 4, 4)


def test_trainers_that_have_not_come_back_yet_outlive_the_next_restart(make_cluster):
    cluster = kept_cluster(make_cluster, 2, *GRACE)
    job = cluster.launch("twice", [TRAINER, "--ops", "5"], of_rank={1: ["--delay-ms", "4000"]})
    wait_for_all(job, "done", 1)
    time.sleep(0.3)
    for _ in range(2):  # while rank 1 computes
        replace(cluster.nodes[1])
        time.sleep(0.5)
    assert job.wait(60) == [0] * 2, [one.says()[-600:] for one in job]
    assert_untouched(job, 5)


@pytest.mark.parametrize("before, after", [({"slots": "32"}, {"slots": "16"}), ({"slots": "8"}, {"slots": "16", "slice-bytes": "128K"})],
                         ids=["fewer", "as many bytes"])
def test_other_slots_end_a_job_in_words(make_cluster, before, after):
    """Slices under way lie by numbers: with another layout they would be taken from where they are not."""
    cluster = kept_cluster(make_cluster, 1, *GRACE, settings=before)
    job = cluster.launch("other", [TRAINER, "--ops", "100000", "--delay-ms", "5"], per_node=2)
    wait_for_all(job, "done", 10)
    cluster.settings.update(after)
    cluster.configure(cluster.nodes[0])
    replace(cluster.nodes[0])
    for trainer in job:
        told = wait_failed(trainer, 10)
        assert told["cause"] == PEER_LOST and f"it had {before['slots']} slots" in told["message"], told
        trainer.wait(10)
    run_job(cluster, "next", "--ops", "5", per_node=2)


def test_a_daemon_that_comes_back_and_cannot_be_used_is_not_called_away(make_cluster):
    cluster = kept_cluster(make_cluster, 2, "--restart-grace", "3s")
    first, second = cluster.nodes
    job = cluster.launch("misfit", [TRAINER, "--ops", "100000", "--delay-ms", "5"])
    wait_for_all(job, "done", 10)
    cluster.configure(second, slots=8)
    replace(second)
    wait_until(lambda: first.peers("refused"), 3, "n0 says so before the grace is over")
    assert "8 slots" in first.peers()[0]["reason"]
    told = wait_failed(job[0], 20)
    assert told["cause"] == PEER_LOST and told["blamed_node"] == "n1", told
    assert "cannot be used: node n1 cuts slices" in told["message"] and "set slice-bytes and slots alike" in told["message"], told
    assert "it had 16 slots" in wait_failed(job[1], 1)["message"]
    for trainer in job:
        trainer.wait(20)
