"""gradring.tensorboard: what it writes, and that it is in nobody's way."""

import json
import logging
import math
import os
import sys
import time

import pytest

pytest.importorskip("tensorboard", reason="needs TensorBoard")

from gradring.tensorboard import Reporter  # noqa: E402


def scalars_of(folder):
    """Name -> values, of what lies in one folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder)).Reload()
    return {name: [one.value for one in found.Scalars(name)] for name in found.Tags()["scalars"]}


def test_one_rank_of_each_node_writes_what_its_daemon_tells(ring, tmp_path):
    folder = ring.cluster.folder / "runs"
    said = ring.run("tensorboard_report", folder, ring.cluster.program("gradringctl"))
    assert not any(one[-1]["imported"] for one in said), "a trainer gets no framework by it"
    assert sorted(one.name for one in (folder / "gradring").iterdir()) == ["n0", "n1"]
    for node in ring.nodes:
        written = folder / "gradring" / node.name
        assert len(list(written.iterdir())) == 1
        scalars = scalars_of(written)
        ranks = [2 * node.index, 2 * node.index + 1]
        assert {name for name in scalars if "rank" in name} == {
            f"gradring_rank_{rank}/{what}" for rank in ranks for what in (
                "ops_behind", "quiet_seconds", "nonfinite", "exposed_ms", "straggler_ms", "compute_ms", "input_ms", "late_ms")}
        assert max(scalars["gradring/ops_per_second"]) > 0
        assert max(scalars["gradringd/sent_bytes_per_second"]) > 0
        assert scalars["gradringd/rss_bytes"][-1] > 0
        assert all(math.isfinite(value) and value >= 0 for values in scalars.values() for value in values)
        for rank in ranks:
            assert scalars[f"gradring_rank_{rank}/nonfinite"][-1] == (3 if rank == 1 else 0)


def test_it_says_once_that_nobody_answers(tmp_path, caplog, monkeypatch):
    """And leaves no file."""
    program = tmp_path / "gradringctl"
    program.write_text("#!/bin/sh\necho asked >> " + str(tmp_path / "asked") + "\necho no gradringd here >&2\nexit 3\n")
    program.chmod(0o755)
    with caplog.at_level(logging.WARNING, "gradring"), Reporter(tmp_path / "runs", 0.01, gradringctl=program):
        deadline = time.monotonic() + 20
        while not (tmp_path / "asked").exists() or len((tmp_path / "asked").read_text().split()) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert [one.getMessage() for one in caplog.records] == ["no figures for TensorBoard: no gradringd here"]
    assert not (tmp_path / "runs").exists()


def test_it_says_that_there_is_no_program_to_ask(tmp_path, caplog, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with caplog.at_level(logging.WARNING, "gradring"):
        reporter = Reporter(tmp_path / "runs", 60)
        deadline = time.monotonic() + 20
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.01)
        reporter.close()
    assert "no gradringctl in PATH" in caplog.records[0].getMessage()


# Answers for a node whose jobs and ranks stand in a file.
ANSWERS = """#!{python}
import json, sys
jobs = json.load(open({jobs!r}))
words = sys.argv[2:]
def told(one):
    ranks = [dict(rank=rank, node="n0", pid=pid, ops_submitted=0, quiet_seconds=0, nonfinite=0)
             for rank, pid in enumerate(one["pids"]) if pid]
    return dict(incarnation=one["name"], state=one["state"], size=2, ops_completed=0, ops_open=one["open"],
                staging_bytes=0, ranks=ranks)
print(json.dumps(
    dict(node="n0", cpu_seconds=0, rss_bytes=1) if words == ["status"] else
    dict(peers=[]) if words == ["peers"] else
    dict(jobs=[told(one) for one in jobs]) if words == ["jobs"] else
    next(told(one) for one in jobs if one["name"] == words[1])))
"""


def test_it_goes_on_in_another_job_and_in_place_of_a_rank_that_is_lost(tmp_path):
    jobs, program, runs = tmp_path / "jobs", tmp_path / "gradringctl", tmp_path / "runs"
    program.write_text(ANSWERS.format(python=sys.executable, jobs=str(jobs)))
    program.chmod(0o755)

    def are(*now):
        fresh = tmp_path / "fresh"
        fresh.write_text(json.dumps([dict(zip(("name", "state", "pids", "open"), one)) for one in now]))
        fresh.rename(jobs)

    def wait_for(scalar):
        deadline = time.monotonic() + 20
        while scalar not in (scalars_of(folder)["gradring/ops_open"] if folder.exists() else []):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    folder, mine = runs / "gradring" / "n0", os.getpid()
    are(("first", "running", [mine, 1], 1))
    with Reporter(runs, 0.01, gradringctl=program):
        wait_for(1)
        are(("first", "ended", [], 2), ("second", "running", [1, mine], 3))  # of which the other writes
        time.sleep(0.5)
        assert 3 not in scalars_of(folder)["gradring/ops_open"]
        are(("second", "running", [None, mine], 4))
        wait_for(4)
