"""Ranks with unequal amounts of data: who has no more joins, and the others go on at full strength."""

import os
import signal

import pytest
from checks import OK, TRAINER, TRAINER_DIED, child_of, events, settle, wait_for_all


def check_ended_well(job, ops):
    size = len(job)
    for rank, trainer in enumerate(job):
        done = events(trainer, "done")
        assert all(one["verdict"] == OK and one["right"] for one in done), trainer.says()
        own = sum(ops * (1 + (rank + epoch) % size) // size for epoch in range(3))
        assert len(done) == own + 3
        # In each round the one with most steps is another.
        assert [one["last"] for one in events(trainer, "no more")] == [
            (size - 1 - epoch) % size for epoch in range(3)]


@pytest.mark.parametrize("per_node", [1, 2])
@pytest.mark.parametrize("count", ["1", "200000"])
def test_nobody_waits_for_those_who_have_no_more(quad, per_node, count):
    job = quad.launch("uneven", [TRAINER, "--uneven", "--ops", "40", "--count", count], per_node=per_node)
    assert job.wait(90) == [0] * len(job), [one.says()[-1500:] for one in job]
    check_ended_well(job, 40)
    settle(lambda: not any(node.ask("status")["sessions"] for node in quad.nodes), "all sessions are closed")
    assert not any(node.segments() for node in quad.nodes)


def test_a_rank_that_dies_after_it_joined_is_named(quad):
    job = quad.launch("bereft", [TRAINER, "--uneven", "--ops", "400", "--count", "1000", "--delay-ms", "5"], per_node=1)
    wait_for_all([job[3]], "done", 110)
    job[0].signal(signal.SIGKILL)  # it had a quarter of the steps
    job.wait(60)
    for trainer in job[1:]:
        failed = [one for one in events(trainer, "done") if one["code"] != 0]
        assert failed and failed[0]["blamed_rank"] == 0, trainer.says()[-800:]
        # An op that was final somewhere when it died ends well everywhere, and the next one is refused.
        assert failed[0]["cause"] == TRAINER_DIED or "trainer died: rank 0" in failed[0]["message"], failed


def test_daemons_restart_while_ranks_have_joined(make_cluster):
    ring = make_cluster(2, settings={"restart-grace": "10s"}).start(kept=(0, 1))
    job = ring.launch("paused", [TRAINER, "--uneven", "--ops", "120", "--count", "40000", "--delay-ms", "3"], per_node=2)
    wait_for_all([job[3]], "done", 60)
    for node in ring.nodes:
        old = child_of(node)
        os.kill(old, signal.SIGKILL)
        wait_for_all([job[3]], "done", 75)
    assert job.wait(60) == [0] * 4, [one.says()[-1500:] for one in job]
    check_ended_well(job, 120)
