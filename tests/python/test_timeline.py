"""Horovod's timeline: a file that shows all ranks, made by gradringctl."""

import json
import logging
import os
from types import SimpleNamespace

import pytest

from gradring import timeline


@pytest.mark.parametrize("how", ["environment", "script", "torch"])
def test_a_timeline_has_all_ranks(ring, tmp_path, how):
    if how == "torch":
        pytest.importorskip("torch")
    file = tmp_path / "timeline.json"
    said = ring.run("timeline", how, file, ring.cluster.program("gradringctl").parent)
    assert said[0][-1]["there"]
    events = json.loads(file.read_text())["traceEvents"]
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert tracks >= {"rank 0", "rank 1", "rank 2", "rank 3", "lane 0"}
    assert sum(event["name"] == "ALLREDUCE" for event in events) >= 4 * 4
    ops = [event["name"] for event in events if event.get("cat") == "op"]
    if how != "torch":
        assert any("weights" in name for name in ops), ops
    assert not any(name.startswith("named op ") for name in ops), ops


def test_no_picture_is_no_failure(tmp_path, caplog, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GRADRING_TIMELINE", str(tmp_path / "timeline.json"))
    with caplog.at_level(logging.WARNING, "gradring"):
        timeline.begin(1)
        timeline.begin(0)
        timeline.end()
    assert [one.getMessage() for one in caplog.records] == ["no timeline: there is no gradringctl in PATH"]


def test_what_the_picture_lacks_is_said(tmp_path, caplog, monkeypatch):
    program = tmp_path / "gradringctl"
    program.write_text("""#!/bin/sh
[ "$3" = stop ] && echo '{"problems": ["9 events were overwritten"]}' || echo '{"problems": ["node n1 is lost"]}'
exit 1
""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    for file in ("nowhere/timeline.json", "timeline.json"):
        monkeypatch.setenv("GRADRING_TIMELINE", str(tmp_path / file))
        with caplog.at_level(logging.WARNING, "gradring"):
            timeline.begin(0)
            timeline.end()
    assert [one.getMessage() for one in caplog.records] == [
        f"no timeline: cannot write {tmp_path}/nowhere/timeline.json",
        "timeline: node n1 is lost", "timeline: 9 events were overwritten"]


def test_what_is_no_file_is_refused_before_it_is_late(tmp_path, monkeypatch):
    monkeypatch.setattr(timeline, "Ctl", lambda: pytest.fail("nobody is asked"))
    with pytest.raises(OSError, match="it is a folder"):
        timeline._start(tmp_path)
    with pytest.raises(OSError, match="cannot write"):
        timeline._start(tmp_path / "nowhere" / "timeline.json")


def test_a_forked_child_that_ends_leaves_the_trace_on(tmp_path, monkeypatch):
    asked = []
    ctl = SimpleNamespace(ask=lambda *words, **_: asked.append(words[:2]) or {})
    monkeypatch.setattr(timeline, "Ctl", lambda: ctl)
    timeline._start(tmp_path / "timeline.json")
    child = os.fork()
    if child == 0:
        timeline.end()
        os._exit(len(asked))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1, "the start alone"
    timeline.end()
    assert asked == [("trace", "start"), ("trace", "stop")]
