"""Ranks that are forked off a process with torch in it, as most of these tests have them, are as others are."""

import signal

import pytest
from conftest import reports

pytest.importorskip("torch", reason="needs PyTorch")


def test_a_forked_rank_begins_and_ends_as_a_fresh_one(ring):
    fresh, forked = (ring.launch("begins", "a word", name="begins", fresh=fresh) for fresh in (True, False))
    for job in (fresh, forked):
        assert job.wait(60) == [3, 1, -signal.SIGINT, -signal.SIGKILL], [one.complains() for one in job]
    for one, other in zip(fresh, forked):
        (found, drawn, *end), (found_of_other, drawn_of_other, *end_of_other) = reports(one), reports(other)
        assert found == found_of_other and end == end_of_other
        assert one.complains().splitlines()[-1:] == other.complains().splitlines()[-1:]
    drawn = [number for one in forked for number in reports(one)[1]["drawn"]]
    assert len(set(drawn)) == 4 * 3, drawn
