"""A part of an elastic job is lost. The rest goes on, agrees on every op to the bit, and takes in who comes."""

import signal
import time

from checks import (
    FAILED, OK, OK_SHRUNK, TRAINER, assert_agreed, events, longest_step, settle, wait_failed, wait_for, wait_for_all,
)
from cluster import wait_until

NO_QUORUM = 11

ELASTIC = ["--join-every", "5", "--delay-ms", "4", "--count", "50000"]


def elastic(cluster, name, ops, *words, policy="elastic", **options):
    return cluster.launch(name, [TRAINER, "--policy", policy, "--ops", str(ops), *ELASTIC, *words], **options)


def test_the_others_go_on_without_a_killed_trainer(quad, figure):
    job = elastic(quad, "shrinks", 150, per_node=2)
    wait_for_all(job, "done", 30)
    job[5].signal(signal.SIGKILL)
    survivors = [trainer for trainer in job if trainer is not job[5]]
    assert job.wait(60) == [0] * 5 + [-9] + [0] * 2, [one.says()[-600:] for one in survivors]
    seen = assert_agreed(survivors)
    assert seen[0][1] == 8 and seen[149] == (OK, 7, 7, seen[149][3])
    view = events(job[0], "join point")[-1]["view"]
    assert view["ranks"] == [0, 1, 2, 3, 4, 6, 7] and "rank 5" in view["explanation"], view
    figure(f"elastic: a trainer killed, the other 7 lose at most {longest_step(survivors):.3f} s")


def test_what_a_dead_trainer_submitted_still_counts(quad):
    job = elastic(quad, "last-will", 60, per_node=2, of_rank={2: ["--at", "22", "--act", "submit-and-hang"],
                                                              7: ["--at", "22", "--act", "hang"]})
    wait_for_all([trainer for trainer in job if trainer is not job[7]], "submitted", 22)
    job[2].signal(signal.SIGKILL)
    time.sleep(0.3)
    job[7].kill()  # the one that all waited for
    assert job.wait(60) == [0, 0, -9, 0, 0, 0, 0, -9], [one.says()[-600:] for one in job]
    seen = assert_agreed([trainer for trainer in job if trainer not in (job[2], job[7])])
    assert seen[22][:3] == (OK_SHRUNK, 7, 7) and seen[59][:3] == (OK, 6, 6)
    assert events(job[0], "done", 22)[0]["contributors"] == [[0, 1, 2, 3, 4, 5, 6]]


def test_a_node_is_lost_and_comes_back(make_cluster, figure):
    cluster = make_cluster(4).start()
    job = elastic(cluster, "returns", 300)
    wait_for_all(job, "done", 40)
    cluster.nodes[3].daemon.signal(signal.SIGKILL)
    job[3].kill()
    survivors = list(job)[:3]
    wait_for_all(survivors, "done", 80)
    cluster.processes.append(cluster.nodes[3].run_daemon())
    cluster.nodes[3].wait_ready(3)
    again = cluster.start_trainer("returns", [TRAINER, "--policy", "elastic", "--ops", "300", *ELASTIC],
                                  cluster.nodes[3], 3, 4)
    wait_for(again, "state", seconds=30)
    assert [one.wait(90) for one in [*survivors, again]] == [0] * 4, [one.says()[-600:] for one in [*survivors, again]]
    seen = assert_agreed([*survivors, again])
    assert seen[10][:3] == (OK, 4, 4) and seen[299][:3] == (OK, 4, 4)
    assert any(told[1] == 3 for told in seen.values())
    figure(f"elastic: a daemon killed, the other 3 nodes lose at most {longest_step(survivors):.3f} s "
           f"(its return included)")


def test_too_few_are_left(quad):
    job = elastic(quad, "too-few", 1000, policy="elastic min=4")
    wait_for_all(job, "done", 10)
    job[2].signal(signal.SIGKILL)
    for trainer in job:
        if trainer is job[2]:
            continue
        told = wait_failed(trainer, 10)
        assert "rank 2" in told["message"] and "signal 9" in told["message"], told
        assert "fewer than min=4" in told["message"], told
    job.wait(10)


def test_who_is_cut_off_gives_up_and_the_majority_goes_on(make_cluster, namespaces):
    cluster = make_cluster(3, network=namespaces, settings={"quorum-wait": "1s"}).start()
    job = elastic(cluster, "parted", 900)
    wait_for_all(job, "done", 30)
    cluster.network.cut(1)
    told = wait_failed(job[1], 20)
    assert told["verdict"] == FAILED and told["cause"] == NO_QUORUM, told
    assert job[0].wait(60) == 0 and job[2].wait(60) == 0, [one.says()[-600:] for one in job]
    assert_agreed([job[0], job[2]])
    cluster.network.mend(1)
    settle(lambda: all(not node.ask("status")["jobs"] for node in cluster.nodes), "no job is left anywhere")


def test_who_cannot_come_in_is_told_why_on_a_node_that_is_not_in_the_job(make_cluster):
    ring = make_cluster(3, settings={"form-deadline": "3s"}).start()
    job = elastic(ring, "full", 100000, nodes=ring.nodes[:2])
    wait_for_all(job, "done", 5)
    late = ring.start_trainer("full", [TRAINER, "--policy", "elastic", "--ops", "9", *ELASTIC], ring.nodes[2], 1, 2)
    wait_until(lambda: "rank 1 of it lives" in str(ring.nodes[2].ask("jobs")), 3, "it is shown")
    assert late.wait(20) not in (0, None)
    assert f"rank 1 of it lives: pid {job[1].pid} on node n1" in late.says() + late.complains(), late.complains()
    job.kill()
