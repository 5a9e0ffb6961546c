"""After how long a wait is told to people."""

import logging
from pathlib import Path

import pytest
from gradring import handles, stalls

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("given", "seconds"), [(None, 60), ("", 60), ("0", 0), ("0.5", 0.5), ("300", 300)])
def test_the_environment_says_it(monkeypatch, given, seconds):
    told = []
    monkeypatch.setattr(stalls._native, "warn_of_stalls", told.append)
    monkeypatch.delenv("GRADRING_STALL_WARNING", raising=False)
    if given is not None:
        monkeypatch.setenv("GRADRING_STALL_WARNING", given)
    stalls.watch()
    assert told == [seconds]


@pytest.mark.parametrize("given", ["soon", "-1", "nan", "inf", "1 s"])
def test_a_slip_is_named(monkeypatch, given):
    monkeypatch.setenv("GRADRING_STALL_WARNING", given)
    with pytest.raises(ValueError, match=f"GRADRING_STALL_WARNING is '{given}': give the seconds"):
        stalls.watch()


def test_it_is_one_line_of_the_log(caplog):
    with caplog.at_level(logging.WARNING, "gradring"):
        stalls.tell(3, 61.2, "barrier (op 0) waits for rank 1 (node a, pid 71)")
    assert [one.getMessage() for one in caplog.records] == [
        "gradring: rank 3 has waited for 61 s: barrier (op 0) waits for rank 1 (node a, pid 71)"]


def test_the_documents_have_names_as_daemons_know_them():
    name = handles.Names().check("layer1.weight", "allreduce")
    assert f"('{name}', use 3) waits for rank 2" in (ROOT / "docs/python.md").read_text()


def test_who_waits_for_a_job_or_a_group_to_form_says_for_whom(ring):
    job = ring.launch("forms_late", 1)
    assert job.wait(60) == [0] * 4, [one.complains()[-1000:] for one in job]
    told = [[line for line in one.complains().splitlines() if "has waited for" in line] for one in job]
    of_job = [line for line in told[0] if " waits for rank 1 to join" in line]
    assert 2 <= len(of_job) <= 4 and of_job[0].startswith("gradring: rank 0 has waited for "), told
    of_set = [line for line in told[2] if "[1-2] waits for 1 of 2 ranks: rank 1 (node " in line]
    assert 2 <= len(of_set) <= 4 and of_set[0].startswith("gradring: rank 2 has waited for "), told
    assert f"pid {job[1].pid}) of job " in of_set[0], told
    assert len(told[0]) == len(of_job) and len(told[2]) == len(of_set) and not told[1] and not told[3], "one tells it for all"
