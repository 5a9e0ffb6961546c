"""Several jobs at once: by name, by token, by owner."""

import os
import re
import shutil

import pytest
from checks import TRAINER, events, jobs_of, run_job, wait_for, wait_for_all
from cluster import wait_until

NOBODY = 65534


def test_two_jobs_at_once(pair):
    jobs = [pair.launch(name, [TRAINER, "--ops", "50", "--count", "20000"], per_node=2) for name in ("one", "two")]
    for job in jobs:
        assert job.wait(60) == [0] * 4
        assert all(one["right"] for trainer in job for one in events(trainer, "done"))


def test_same_name_with_other_tokens_never_meet(pair):
    jobs = [pair.launch("same", [TRAINER, "--ops", "50", "--delay-ms", "5"], per_node=2, token=token)
            for token in ("first", "second")]
    for job in jobs:
        wait_for_all(job, "done", 2)
    for node in pair.nodes:
        assert [one["name"] for one in jobs_of(node)] == ["same", "same"]
    for job in jobs:
        assert job.wait(60) == [0] * 4
        assert all(one["ranks"] == 4 for trainer in job for one in events(trainer, "done"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a trainer as another user")
def test_another_user_is_refused_in_words(pair, programs):
    # Somewhere that every user may reach, whatever folder the build lies in.
    shutil.copy(programs / TRAINER, pair.folder / TRAINER)
    for library in (programs.parent / "lib").glob("libgradring.so*"):
        shutil.copy(library, pair.folder / library.name)
    strange = ["env", f"LD_LIBRARY_PATH={pair.folder}", str(pair.folder / TRAINER), "--join-timeout-ms", "10000"]
    owner = [pair.start_trainer("mine", [TRAINER, "--ops", "1"], node, rank, 3)
             for rank, node in enumerate(pair.nodes)]
    wait_until(lambda: jobs_of(pair.nodes[1]), 10, "the job forms")
    stranger = pair.start_trainer("mine", strange, pair.nodes[1], 2, 3, uid=NOBODY)
    stranger.wait(30)
    refused = wait_for(stranger, "refused")
    assert f"uid {NOBODY}" in refused["message"] and "uid 0" in refused["message"], refused
    # The owner's ranks still wait, and their own third rank makes them whole.
    third = pair.start_trainer("mine", [TRAINER, "--ops", "1"], pair.nodes[1], 2, 3)
    assert [trainer.wait(30) for trainer in (*owner, third)] == [0, 0, 0]
    # A job of the other user's own is nobody else's business.
    alone = pair.start_trainer("his", [*strange, "--ops", "3"], pair.nodes[0], 0, 1, uid=NOBODY)
    assert alone.wait(30) == 0, alone.says()


def test_missing_ranks_are_named(pair):
    ranks = [pair.start_trainer("lonely", [TRAINER, "--join-timeout-ms", "1500"], pair.nodes[0], rank, 4)
             for rank in (0, 2)]
    for trainer in ranks:
        trainer.wait(20)
        refused = wait_for(trainer, "refused")
        # The time of the first to join runs out first, and then it is missing as well.
        assert re.search(r"missing ranks: ([02] )?1 3", refused["message"]), refused
    run_job(pair, "lonely", "--ops", "2", per_node=2)


def test_conflicting_claims_are_both_named(pair):
    first = pair.start_trainer("twice", [TRAINER], pair.nodes[0], 0, 2)
    wait_until(lambda: jobs_of(pair.nodes[0]), 10, "the job forms")
    second = pair.start_trainer("twice", [TRAINER, "--join-timeout-ms", "5000"], pair.nodes[1], 0, 2)
    second.wait(20)
    refused = wait_for(second, "refused")
    assert "node n0" in refused["message"] and "node n1" in refused["message"], refused
    first.kill()
