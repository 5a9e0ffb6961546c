"""What draws terminals and traces for the documents: pictures of what was shown, and words where there is nothing to draw."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/docs"))


@pytest.fixture(name="terminal")
def terminal_module():
    for module in ("pyte", "PIL"):
        pytest.importorskip(module, reason="a terminal is drawn with pyte and Pillow")
    import terminal
    if not Path(terminal.FONT).exists():
        pytest.skip("a terminal is drawn with DejaVu Sans Mono (Debian's fonts-dejavu-core)")
    return terminal


def cells(terminal, command, columns=40):
    return terminal.trimmed(terminal.screen_of(terminal.output_of(command, columns, 20), columns))


def test_a_terminal_has_the_text_and_its_colours(terminal):
    rows = cells(terminal, ["printf", "a\\033[31mred\\033[0m\\033[2mfaint\\033[0m\\n\\n  b   \\n\\n"])
    assert ["".join(cell.data for cell in row).rstrip() for row in rows] == ["aredfaint", "", "  b"]
    assert [rows[0][i].fg for i in (0, 1, 4)] == ["default", "red", "brightblack"]


def test_the_command_sees_a_terminal_of_that_width(terminal):
    rows = cells(terminal, ["sh", "-c", "test -t 1 && stty size"], columns=77)
    assert "".join(cell.data for cell in rows[0]) == f"{terminal.ROWS} 77"


def test_a_picture_has_the_words_and_the_size_of_its_text(terminal, tmp_path):
    from PIL import Image
    path = tmp_path / "out.png"
    done = subprocess.run([sys.executable, ROOT / "tools/docs/terminal.py", "--prompt", "show", path, "--", "printf",
                           "\\033[31mone\\033[0m\\ntwo"], capture_output=True, text=True, timeout=60, check=True)
    with Image.open(path) as picture:
        assert done.stdout == f"{path}: {picture.width}x{picture.height}\n"
        colours = {picture.convert("RGB").getpixel((x, y)) for x in range(picture.width) for y in range(picture.height)}
    assert (0xff, 0x6b, 0x74) in colours, "red text is red"


def span(pid, tid, name, begin, length, category="op"):
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": begin, "dur": length, "cat": category, "args": {}}


EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "job a on node n0"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "rank 0"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 9, "args": {"name": "lane 0"}},
    span(1, 1, "op 0", 1000, 5000), span(1, 1, "NEGOTIATE_ALLREDUCE", 1000, 2000, ""), span(1, 1, "ALLREDUCE", 3000, 3000, ""),
    span(1, 9, "op 0 slice 0", 3500, 500, "slice"),
    *({"ph": phase, "name": "op", "cat": "flow", "id": "0x1", "pid": 1, "tid": tid, "ts": at}
      for phase, tid, at in (("s", 1, 1000), ("t", 9, 3500), ("f", 1, 6000)))]


@pytest.fixture(name="timeline")
def timeline_module():
    pytest.importorskip("matplotlib", reason="a trace is drawn with matplotlib")
    import timeline
    return timeline


def test_spans_within_spans_lie_below_them(timeline):
    trace = timeline.Trace(EVENTS)
    assert trace.middle() == 1
    slices = trace.seen(0, 10)
    depth = timeline.depths(slices)
    assert [depth[id(one)] for one in slices] == [0, 1, 1, 0]
    place, *_ = timeline.rows_of(trace, slices)
    assert place[1, 9] > place[1, 1] + 1, "a track begins below the deepest span of the one above"


def test_a_trace_is_drawn_and_an_empty_one_is_complained_about(timeline, tmp_path):
    def draw(events):
        (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
        return subprocess.run([sys.executable, timeline.__file__, tmp_path / "trace.json", tmp_path / "out.png"],
                              capture_output=True, text=True, timeout=120, check=False)
    assert draw(EVENTS).returncode == 0 and (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    done = draw(EVENTS[:3])
    assert done.returncode == 1 and "there is no op in it" in done.stderr and "Traceback" not in done.stderr
