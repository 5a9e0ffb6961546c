"""Groups of a job's ranks: jobs of their own, in the memory of the job, over several nodes."""

import os
import signal

from checks import CODE_FAILED, FAILED, OK, OK_SHRUNK, TRAINER, TRAINER_DIED, child_of, events, jobs_of, settle, wait_for_all

GRID = "0,1/2,3/4,5/6,7/0,2,4,6/1,3,5,7"  # the ranks of each node, and one of each


def told(trainer, group):
    return [one for one in events(trainer, "done") if one["group"] == group]


def test_sums_of_groups_and_of_the_job_in_turns(quad):
    job = quad.launch("grid", [TRAINER, "--groups", GRID, "--ops", "40", "--count", "70000"], per_node=2)
    assert job.wait(90) == [0] * 8, [one.says()[-600:] for one in job]
    for trainer in job:
        assert len(events(trainer, "done")) == 3 * 40
        assert all(one["verdict"] == OK and one["right"] for one in events(trainer, "done"))
    settle(lambda: not any(node.ask("status")["sessions"] for node in quad.nodes), "all sessions are closed")
    assert not any(node.segments() for node in quad.nodes)


def test_a_killed_rank_ends_its_group_and_an_elastic_job_goes_on(quad):
    job = quad.launch("mixed", [TRAINER, "--groups", GRID, "--policy", "elastic", "--ops", "200", "--count", "20000",
                                "--delay-ms", "5", "--keep-going"], per_node=2)
    wait_for_all(job, "done", 20)
    job[5].signal(signal.SIGKILL)
    survivors = [trainer for trainer in job if trainer is not job[5]]
    job.wait(60)
    for trainer in survivors:
        ended = told(trainer, "")
        assert len(ended) == 200 and all(one["verdict"] in (OK, OK_SHRUNK) and one["right"] for one in ended)
        assert ended[-1]["size"] == 7
        mine = GRID.split("/")[trainer.rank // 2], GRID.split("/")[4 + trainer.rank % 2]
        for group in mine:
            last = told(trainer, group)[-1]
            if "5" not in group:
                assert last["op"] == 199 and last["verdict"] == OK, last
                continue
            place = group.split(",").index("5")
            assert last["code"] == CODE_FAILED and "signal 9" in last["message"], last
            # Whoever knew it before the next op submits none, and has no result of it.
            if last["verdict"] != 0:
                assert (last["verdict"], last["cause"], last["blamed_rank"]) == (FAILED, TRAINER_DIED, place), last


def test_a_daemon_restarts_and_groups_go_on(make_cluster):
    ring = make_cluster(2, settings={"restart-grace": "10s"}).start(kept=(0, 1))
    job = ring.launch("paused", [TRAINER, "--groups", "0,1,2,3/0,2/1,3", "--ops", "150", "--count", "40000",
                                 "--delay-ms", "3"], per_node=2)
    wait_for_all(job, "done", 20)
    old = child_of(ring.nodes[1])
    os.kill(old, signal.SIGKILL)
    assert job.wait(60) == [0] * 4, [one.says()[-600:] for one in job]
    assert all(one["verdict"] == OK and one["right"] for trainer in job for one in events(trainer, "done"))
    assert child_of(ring.nodes[1]) != old


def test_a_group_that_a_rank_never_calls_is_told_of_by_every_node_of_the_job(pair):
    """Rank 1 waits for rank 0 in an op of the job; rank 0 waits for rank 1 to come to their group."""
    caller = pair.start_trainer("partial", [TRAINER, "--groups", "0/0,1", "--ops", "1"], pair.nodes[0], 0, 2)
    other = pair.start_trainer("partial", [TRAINER, "--groups", "0", "--ops", "1"], pair.nodes[1], 1, 2)
    settle(lambda: len(jobs_of(pair.nodes[0])) == 3, "rank 0 has one group, and waits for the other")
    for node in pair.nodes:
        said = node.ask("job", "partial")
        assert [(one["name"], one["state"], one["node"]) for one in said["within"]] == [
            ("partial[0-1]", "forming", "n0"), ("partial[0]", "running", "n0")], said
        assert said["within"][0]["explanation"] == (
            f"waits for 1 of 2 ranks: rank 1 (node n1, pid {other.pid}) of job partial"), said
        assert said["within_left_out"] == 0
    caller.signal(signal.SIGSTOP)
    other.kill()
    settle(lambda: pair.nodes[0].ask("job", "partial")["state"] == "failed", "the job has failed")
    assert [one["state"] for one in pair.nodes[0].ask("job", "partial")["ranks"]] == ["failed"], "it is here still"
    caller.kill()
