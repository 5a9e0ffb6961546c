"""A running job's timeline, of all nodes on one clock, in a form that others read."""

import json
import re
import subprocess
import time
from collections import Counter

from checks import TRAINER, wait_for_all

import cluster as testbed

# Of several slices each.
STEPS = [TRAINER, "--ops", "100000", "--delay-ms", "20", "--count", "300001"]


ROUNDED_US = 0.002  # times are written in microseconds with three digits


def read(path):
    """The events by what they are: the names of tracks, spans by category, arrows."""
    events = json.loads(path.read_text())["traceEvents"]
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    tracks = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    return processes, tracks, spans, events


def assert_as_perfetto_reads(events):
    """What Perfetto asks of this format: on a track spans lie one behind or inside the other, every event has a number of 32
    bits for its place, and each end of an arrow lies in a span."""
    tracks = {}
    for event in events:
        assert 0 < event["pid"] < 2**32 and 0 <= event["tid"] < 2**32, event
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0, event
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for track, spans in tracks.items():
        inside = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while inside and inside[-1] <= begin + ROUNDED_US:
                inside.pop()
            assert not inside or end <= inside[-1] + ROUNDED_US, f"{track}: {begin} to {end} is cut by the end of another"
            inside.append(end)
    begun = set()
    for event in sorted((one for one in events if one["ph"] in "stf"), key=lambda one: (one["ts"], "stf".index(one["ph"]))):
        assert event["ph"] == "s" or event["id"] in begun, f"an arrow that begins nowhere: {event}"
        begun.add(event["id"])
        assert any(begin - ROUNDED_US <= event["ts"] <= end + ROUNDED_US
                   for begin, end in tracks[event["pid"], event["tid"]]), f"it points to nothing: {event}"


def test_what_a_job_does_is_seen_on_all_nodes_on_one_clock(make_cluster, tmp_path):
    # Its own: the memory of a trace stays with the daemon.
    pair = make_cluster(2).start()
    job = pair.launch("traced", STEPS, per_node=2)
    wait_for_all(job, "done", 2)
    first = pair.nodes[0]
    assert first.ask("trace", "start")["nodes"] == [node.name for node in pair.nodes]
    begun = first.ask("job", "traced")["ops_completed"]
    testbed.wait_until(lambda: first.ask("job", "traced")["ops_completed"] > begun + 20, 30, "20 more ops")
    path = tmp_path / "trace.json"
    told = first.ask("trace", "stop", "-o", path)
    assert told["healthy"] and told["overwritten"] == 0, told
    job.kill()

    processes, tracks, spans, events = read(path)
    assert set(processes.values()) >= {f"job traced on node {node.name}" for node in pair.nodes}
    assert set(tracks.values()) >= {f"rank {rank}" for rank in range(4)} | {"lane 0"}
    assert_as_perfetto_reads(events)
    ops = [span for span in spans if span.get("cat") == "op" and span["args"]["end"] == "OK"]
    by_op = {}
    for span in ops:
        if span["args"]["collective"]:
            by_op.setdefault(span["name"], []).append(span)
    whole = [name for name, parts in by_op.items() if len(parts) == 4]
    assert len(whole) >= 15 and told["ops"] >= 4 * len(whole)
    for name in whole:  # nobody is done before all have submitted: so the clocks fit
        parts = by_op[name]
        assert max(one["ts"] for one in parts) < min(one["ts"] + one["dur"] for one in parts), parts
    kinds = Counter(span["name"] for span in spans)
    assert kinds["NEGOTIATE_ALLREDUCE"] >= 4 * len(whole) and kinds["ALLREDUCE"] >= 4 * len(whole) - 4
    assert sum(span.get("cat") == "slice" for span in spans) >= 5 * 2 * (len(whole) - 1)
    arrows = Counter((event["ph"], event["id"]) for event in events if event["ph"] in "stf")
    assert all(arrows["f", flow] == count == 1 for (phase, flow), count in arrows.items() if phase == "s")


def test_what_happened_last_can_be_had_without_a_trace(pair, tmp_path):
    job = pair.launch("sudden", STEPS, per_node=1)
    wait_for_all(job, "done", 3)
    job.kill()
    told = pair.nodes[1].ask("trace", "dump", "-o", tmp_path / "dump.json", "--job", "sudden")
    assert told["ops"] >= 8 and sorted(told["nodes"]) == sorted(node.name for node in pair.nodes)
    processes, *_ = read(tmp_path / "dump.json")
    assert {name.split(" on ")[0] for name in processes.values()} == {"job sudden"}


def test_an_old_trace_is_not_taken_for_a_new_one(make_cluster, tmp_path):
    node = make_cluster(2).start().nodes[0]
    path = tmp_path / "trace.json"
    status, _, said = node.ctl("trace", "stop", "-o", path)
    assert status == 1 and "has no trace" in said and not path.exists()
    assert node.ask("trace", "start")["healthy"]
    status, _, said = node.ctl("trace", "stop", "-o", tmp_path / "nowhere/trace.json")
    assert status == 1 and "cannot write" in said
    assert node.ask("trace", "stop", "-o", path)["healthy"], "it went on"
    time.sleep(2)
    status, out, _ = node.ctl("trace", "stop", "-o", path)
    assert status == 1 and re.search(r"no trace was on: this is the one that ended [2-9] s ago", out), out
    assert node.ask("trace", "start")["healthy"]
    assert node.ask("trace", "stop", "-o", path)["healthy"]


def test_a_trace_that_was_left_on_is_told(make_cluster):
    node = make_cluster(2).start().nodes[0]
    assert node.ask("trace", "start")["healthy"]
    status, out, _ = node.ctl("trace", "start")
    assert status == 1 and out.count("has a trace on that began") == 2 and "tracing on 2 nodes" in out, out


def test_who_asks_for_nonsense_is_told_so(pair, tmp_path):
    node = pair.nodes[0]
    for words, complaint in ((["stop"], "-o FILE"), (["start", "-o", "x"], "start takes no options"), ([], "one of start"),
                             (["dump", "stop"], "one of start"), (["dump", "-o"], "output")):
        status, _, said = node.ctl("trace", *words)
        assert status == 2 and complaint in said, (words, said)
    status, _, said = node.ctl("trace", "dump", "-o", tmp_path / "nowhere/trace.json")
    assert status == 1 and "cannot write" in said
    status, _, said = node.ctl("trace", "dump", "-o", tmp_path / "no.json", "--job", "nosuch")
    assert status == 1 and "nothing is recorded of a job nosuch" in said and not (tmp_path / "no.json").exists()


def test_a_file_is_written_whole_or_stays_as_it_was(pair, tmp_path):
    """A limit on the size of files does what a full disk does."""
    node = pair.nodes[0]
    path = tmp_path / "dump.json"
    assert node.ask("trace", "dump", "-o", path) and path.stat().st_size > 1024
    whole = path.read_text()
    done = subprocess.run(
        ["bash", "-c", 'trap "" XFSZ; ulimit -f 1; exec "$@"', "-", node.program("gradringctl"), "--runtime-dir", node.runtime_dir,
         "trace", "dump", "-o", path], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1 and f"cannot write {path}: File too large" in done.stderr, done
    assert path.read_text() == whole and list(tmp_path.iterdir()) == [path]
    status, out, said = node.ctl("trace", "dump", "-o", "/dev/stdout")
    assert status == 0 and out.startswith("{"), said


def test_a_trace_goes_on_where_it_is_to_be_written_into_a_folder(make_cluster, tmp_path):
    node = make_cluster(2).start().nodes[0]  # its own: the memory of a trace stays with the daemon
    assert node.ask("trace", "start")["healthy"]
    status, _, said = node.ctl("trace", "stop", "-o", tmp_path)
    assert status == 1 and f"cannot write {tmp_path}: Is a directory" in said, said
    assert node.ask("trace", "stop", "-o", tmp_path / "trace.json")["healthy"], "it went on"


def test_what_other_nodes_traced_is_had_from_one_that_was_started_anew(make_cluster, tmp_path):
    cluster = make_cluster(2).start()
    first, second = cluster.nodes
    assert first.ask("trace", "start")["healthy"]
    second.daemon.kill()
    second.run_daemon()
    second.wait_ready(1)
    told = second.ask("trace", "stop", "-o", tmp_path / "trace.json")
    assert told["nodes"] == [first.name], told
    assert any(f"node {second.name} has no trace" in problem for problem in told["problems"]), told
    assert (tmp_path / "trace.json").exists()
