"""Ranks that disagree about an op all get the error, with both named; the next op is good."""

import re

import pytest
from checks import MISMATCH, TRAINER, events, wait_for_all


@pytest.mark.parametrize("collective, act", [
    ("allreduce", "odd-count"), ("allreduce", "odd-dtype"), ("allreduce", "odd-op"), ("broadcast", "odd-root"),
    ("allreduce", "odd-wire"), ("allreduce", "odd-collective")])
@pytest.mark.parametrize("odd", [1, 2], ids=["on-the-same-node", "on-another-node"])
def test_all_ranks_are_told_and_go_on(pair, figure, collective, act, odd):
    job = pair.launch(act, [TRAINER, "--collective", collective, "--ops", "4", "--keep-going"], per_node=2,
                      of_rank={odd: ["--at", "1", "--act", act]})
    assert job.wait(30) == [1] * 4
    told = wait_for_all(job, "done", 1)
    for one in told:
        assert one["cause"] == MISMATCH, one
        named = {int(rank) for rank in re.findall(r"rank (\d) ?\(", one["message"])} | {one["blamed_rank"]}
        assert len(named) == 2 and odd in named, one
    submitted = max(one["time"] for one in wait_for_all(job, "submitted", 1))
    seconds = max(one["time"] for one in told) - submitted
    assert seconds < 10
    figure(f"mismatch ({act}, rank {odd}): all told {seconds:.3f} s after the last submission")
    for trainer in job:
        assert [(one["verdict"], one.get("right")) for one in events(trainer, "done")] == [
            (1, True), (3, None), (1, True), (1, True)], trainer.says()
