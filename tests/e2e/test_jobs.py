"""Several jobs at once: by name, by token, by owner."""

import os
import re
import shutil
import signal
import subprocess
import time

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


only_as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a trainer as another user")


def reachable(ring, programs):
    """What a trainer's command begins with, and gradringctl, somewhere that every user may reach."""
    for program in (TRAINER, "gradringctl"):
        shutil.copy(programs / program, ring.folder / program)
    for library in (programs.parent / "lib").glob("libgradring.so*"):
        shutil.copy(library, ring.folder / library.name)
    trainer = ["env", f"LD_LIBRARY_PATH={ring.folder}", str(ring.folder / TRAINER), "--join-timeout-ms", "10000"]
    return trainer, str(ring.folder / "gradringctl")


@only_as_root
def test_another_user_is_refused_in_words(pair, programs):
    strange, _ = reachable(pair, programs)
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


@only_as_root
def test_who_has_all_jobs_neither_looks_after_the_node_nor_sees_those_of_others(single, programs):
    (node,) = single.nodes
    trainer, ctl = reachable(single, programs)
    run_job(single, "roots", "--ops", "2")
    wait_until(lambda: not jobs_of(node), 10, "root's job is over")
    mine = single.start_trainer("mine", [*trainer, "--ops", "100000", "--delay-ms", "5"], node, 0, 1, uid=NOBODY)
    wait_for_all([mine], "done", 2)
    for words in (("set", "mine", "weight=3"), ("drain",), ("trace", "start")):
        done = subprocess.run(["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", ctl, "--runtime-dir",
                               node.runtime_dir, *words], capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 1 and "not uid 65534's" in done.stderr, done.stderr
    mine.kill()


def test_the_last_job_of_a_name_is_the_one_that_is_told_of(single):
    (node,) = single.nodes
    for status in (3, 4):
        trainer = single.start_trainer("often", [TRAINER, "--ops", "100000", "--delay-ms", "5"], node, 0, 2)
        other = single.start_trainer("often", [TRAINER, "--ops", "100000", "--delay-ms", "5"], node, 1, 2)
        wait_for_all([trainer, other], "done", 2)
        (trainer if status == 3 else other).kill()
        for one in (trainer, other):
            one.wait(20)
        wait_until(lambda: not jobs_of(node), 10, "it has failed")
        wait_until(lambda: node.ask("status")["sessions"] == 0, 10, "nobody of it is here")
        said = node.ask("job", "often")
        assert said["state"] == "failed" and f"rank {status - 3}" in said["explanation"], said
        every = node.ask("jobs")
        assert every["healthy"] and all(job["over"] for job in every["jobs"]), every
    run_job(single, "often", "--ops", "2")
    wait_until(lambda: not jobs_of(node), 10, "it has ended")
    assert node.ask("job", "often")["state"] == "ended"


def test_a_name_makes_no_line_of_the_log(single):
    name = "x\n2026-01-01 00:00:00.000 error: peer b is lost: forged\x1b[31m \x9b32m"
    run_job(single, name, "--ops", "2")
    log = single.nodes[0].log(1000)
    assert "\\x0a2026-01-01 00:00:00.000 error: peer b is lost: forged\\x1b[31m \\u{9b}32m" in log and "\x1b" not in log, log
    assert not any(line.startswith("2026-01-01") for line in log.splitlines()), log


def test_missing_ranks_are_named(pair):
    ranks = [pair.start_trainer("lonely", [TRAINER, "--join-timeout-ms", "1500"], pair.nodes[0], rank, 4)
             for rank in (0, 2)]
    for trainer in ranks:
        trainer.wait(20)
        refused = wait_for(trainer, "refused")
        # The time of the first to join runs out first, and then it is missing as well.
        assert re.search(r"missing ranks: 1 3(; ranks that came and went: [02])?$", refused["message"]), refused
    run_job(pair, "lonely", "--ops", "2", per_node=2)


def test_conflicting_claims_are_both_named(pair):
    first = pair.start_trainer("twice", [TRAINER], pair.nodes[0], 0, 2)
    wait_until(lambda: jobs_of(pair.nodes[0]), 10, "the job forms")
    second = pair.start_trainer("twice", [TRAINER, "--join-timeout-ms", "5000"], pair.nodes[1], 0, 2)
    second.wait(20)
    refused = wait_for(second, "refused")
    assert "node n0" in refused["message"] and "node n1" in refused["message"], refused
    first.kill()


def test_a_job_that_is_over_has_no_op_open(pair):
    """Not even by what was counted just before its trainers died in the middle of one."""
    job = pair.launch("cut-off", [TRAINER, "--ops", "100000"])
    wait_for_all(job, "done", 1)
    job[1].signal(signal.SIGSTOP)
    time.sleep(1)  # so that the last count is of the op that waits for it
    assert [one["ops_open"] for one in jobs_of(pair.nodes[0])] == [1]
    job.kill()

    def over():
        told = [one for one in pair.nodes[0].ask("jobs")["jobs"] if one["name"] == "cut-off" and one["over"]]
        return told and told[0]
    assert wait_until(over, 10, "the job is over")["ops_open"] == 0
