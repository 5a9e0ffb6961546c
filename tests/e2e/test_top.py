"""gradringctl top, on a terminal that is played, and without one; and --watch."""

import json
import re
import signal
import subprocess

import pytest
from checks import TRAINER, wait_for_all
from cluster import wait_until

pytest.importorskip("pyte", reason="python3-pyte is not installed")
from terminal import Terminal  # noqa: E402  (needs what the line above looks for)

COUNT = 250_000


@pytest.fixture
def busy(pair, request):
    """A job that goes on and on; those of the tests before are shown as failed until they are forgotten."""
    name = f"busy-{request.node.name[:20]}"
    job = pair.launch(name, [TRAINER, "--ops", "1000000", "--delay-ms", "5", "--count", str(COUNT)], per_node=2)
    wait_for_all(job, "done", 5)
    yield name
    job.kill()


@pytest.fixture
def show():
    shown = []

    def start(cluster, *words, **options):
        of = cluster.nodes[0]
        shown.append(Terminal([of.program("gradringctl"), "--runtime-dir", of.runtime_dir, *words], **options))
        return shown[-1]

    yield start
    for terminal in shown:
        terminal.close()


def test_a_job_and_its_link_in_80_by_24_and_the_keys(pair, busy, show):
    top = show(pair, "top")
    text = top.wait_for("busy-", "n1", "ops/s", "q quit")
    assert "node n0 ready" in text and "segment-limit" in text, text
    # Rates come with the second look.
    top.wait_until(lambda text: re.search(r"(?m)^busy\S* +4 +2 +[1-9]\d*\.\d ", text), "the job has ops/s")
    top.press("/nobody\r")
    top.wait_for('jobs with "nobody"', "no such job")
    top.press("\x1b")
    top.wait_for("busy-")
    top.press("\r")
    text = top.wait_for("process", "late by")
    assert "link to" not in text and len(re.findall(r"(?m)^ +[0-3] n[01] ", text)) == 4, text
    top.press("\x1b[A\x1b[B\r")
    top.wait_for("link to")
    top.press("n")
    top.wait_for("2 nodes, 2 ready", "from")
    top.press("n")
    top.wait_for("node n1 ready")
    top.press("n")
    top.wait_for("node n0 ready")
    top.press("p")
    top.wait_for("paused")
    top.press("ph")
    top.wait_for("reverse their order")
    top.press("xsr")
    top.wait_for("ops/s")
    top.press("q")
    assert top.end() == 0


def test_it_fits_a_larger_screen_and_one_that_changes(pair, busy, show):
    top = show(pair, "top", columns=200, lines=60)
    top.wait_for(busy, "straggler", "nodes")
    top.resize(60, 10)
    top.process.send_signal(signal.SIGWINCH)
    top.wait_until(lambda text: "busy-" in text and len(text.split("\n")) == 10, "it fits ten lines")
    top.resize(120, 40)
    top.process.send_signal(signal.SIGWINCH)
    top.wait_for(busy, "bus GB/s", "link to", "q quit")
    top.press("q")
    assert top.end() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(single, show, number):
    top = show(single, "top")
    top.wait_for("node n0 ready", "no peers")
    top.process.send_signal(number)
    assert top.end() == 0


def test_control_c_is_such_a_signal_and_ends_the_screen_of_an_xterm(single, show):
    top = show(single, "top", locale="C", term="xterm-256color")
    top.wait_for("node n0 ready", "no peers")
    top.press("\x03")
    assert top.end() == 0


def test_a_daemon_that_goes_is_waited_for(make_cluster):
    cluster = make_cluster(1).start()
    node = cluster.nodes[0]
    top = Terminal([node.program("gradringctl"), "--runtime-dir", node.runtime_dir, "top"])
    try:
        top.wait_for("node n0 ready")
        node.daemon.signal(signal.SIGSTOP)
        top.wait_for("no answer since 4 s", "did not answer", seconds=30)
        node.daemon.signal(signal.SIGCONT)
        top.wait_until_gone("no answer")
        assert node.stop() is None
        top.wait_for("no answer since 2 s", "no gradringd at", seconds=30)
        node.run_daemon()
        top.wait_until_gone("no answer")
        top.press("q")
        assert top.end() == 0
    finally:
        top.close()


def test_one_look_as_text_and_as_json(pair, busy):
    node = pair.nodes[0]
    status, text, _ = node.ctl("top", "--once", "--size", "80x24")
    assert status == 0 and "busy-" in text and "quit" not in text and all(len(line) <= 80 for line in text.splitlines()), text
    told = node.ask("top")
    (job,) = [one for one in told["jobs"] if one["name"] == busy]
    assert job["size"] == 4 and job["nodes"] == 2 and len(job["ranks"]) == 4
    # All of an op's bytes, as each rank counts them; an allreduce of 4 ranks has a bus factor of 1.5.
    assert job["bytes_per_second"] == pytest.approx(job["ops_per_second"] * COUNT * 4, rel=0.2)
    assert job["bus_bytes_per_second"] == pytest.approx(job["bytes_per_second"] * 1.5)
    (link,) = told["links"]
    assert (link["from"], link["to"], link["state"]) == ("n0", "n1", "up")
    assert link["sent_bytes_per_second"] > 0 and 0 < link["rtt_seconds"] < 2
    everywhere = node.ask("top", "--all")
    assert {one["node"] for one in everywhere["nodes"]} == {"n0", "n1"}
    assert {(one["from"], one["to"]) for one in everywhere["links"]} == {("n0", "n1"), ("n1", "n0")}
    assert [one["name"] for one in everywhere["jobs"]].count(busy) == 1, "one job, on two nodes"


def test_without_a_terminal_it_says_what_to_do(single):
    node = single.nodes[0]
    status, out, complaint = node.ctl("top")
    assert status == 2 and out == "" and "top --once" in complaint and "--json" in complaint
    for words in (["--size", "80x24"], ["--once", "--size", "80"], ["--once", "--size", "80x24x"], ["now"],
                  ["--once", "--size", "0x24"], ["--once", "--size", "80x1"]):
        assert node.ctl("top", *words)[0] == 2, words


@pytest.mark.parametrize("term", ["no-such-terminal", "dumb"])
def test_a_terminal_that_is_not_known_or_has_no_cursor_is_refused(single, show, term):
    top = show(single, "top", term=term)
    assert top.end() == 2
    # What is written last may be shown after the program's end.
    top.wait_for(term)


def watch(node, *words):
    return subprocess.Popen([node.program("gradringctl"), "--runtime-dir", node.runtime_dir, *words], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def test_watched_answers_follow_one_another_until_control_c(single):
    node = single.nodes[0]
    with watch(node, "--json", "status", "--watch", "0.2") as asked:
        told = [json.loads(asked.stdout.readline()) for _ in range(3)]
        assert [one["node"] for one in told] == ["n0"] * 3
        asked.send_signal(signal.SIGINT)
        assert asked.wait(10) == 0
    with watch(node, "--watch", "0.2", "job", "nobody") as asked:
        assert "nobody" in asked.stderr.readline() + asked.stderr.readline()
        asked.send_signal(signal.SIGTERM)
        assert asked.wait(10) == 1, "the code of the last answer"


def test_watch_ends_when_nobody_reads_it_though_it_has_nothing_to_print(single):
    with watch(single.nodes[0], "--watch", "0.2", "job", "nobody") as asked:
        assert "nobody" in asked.stderr.readline() + asked.stderr.readline()
        asked.stdout.close()
        try:
            assert asked.wait(10) == 1, "the code of the last answer"
        finally:
            asked.kill()


def test_watch_on_a_terminal_clears_it(single, show):
    screen = show(single, "--watch", "jobs")
    screen.wait_for("jobs every 2 s", "ops done")
    screen.press("\x03")
    assert screen.end() == 0


def test_watch_of_nonsense_is_refused(single):
    node = single.nodes[0]
    for words in (["--watch", "0", "jobs"], ["--watch", "nan", "jobs"], ["--watch", "top"], ["--watch", "keygen"],
                  ["--watch", "jobs", "now"]):
        status, _, complaint = node.ctl(*words)
        assert status == 2 and complaint, words


def test_more_jobs_than_it_shows_are_no_problem(pair):
    """They wait for a second rank, which never comes."""
    jobs = [pair.start_trainer(f"many-{i}", [TRAINER, "--ops", "1"], pair.nodes[0], 0, 2) for i in range(34)]
    wait_until(lambda: sum(one["name"].startswith("many-") for one in pair.nodes[0].ask("jobs")["jobs"]) == 34, 30,
               "all jobs form")
    try:
        status, text, complaint = pair.nodes[0].ctl("top", "--once", "--size", "100x80")
        told = pair.nodes[0].ask("top")
    finally:
        for trainer in jobs:
            trainer.kill()
    assert status == 0 and not complaint, (text, complaint)
    assert re.search(r"(?m)^\d+ more jobs are not shown$", text) and "!" not in text, text
    assert told["healthy"] and len(told["left_out"]) == 1, told


def test_of_more_jobs_than_it_shows_the_one_that_hangs_is_there(pair):
    """The last of them, as those that are there longest come first."""
    words = [TRAINER, "--ops", "1000000", "--delay-ms", "200", "--count", "101"]
    jobs = []
    try:
        for i in range(34):
            jobs.append(pair.launch(f"many-{i}", words, nodes=pair.nodes[:1]))
            wait_for_all(jobs[-1], "done", op=0)
        stuck = pair.launch("stuck", words)
        jobs.append(stuck)
        wait_for_all(stuck, "done")
        stuck[1].signal(signal.SIGSTOP)
        wait_until(lambda: [one for one in pair.nodes[0].ask("jobs")["jobs"] if one["name"] == "stuck" and one["ops_open"]], 10,
                   "rank 0 waits")
        told = pair.nodes[0].ask("top")
    finally:
        for job in jobs:
            job.kill()
    assert len(told["left_out"]) == 1, told
    assert [one["oldest_op"] for one in told["jobs"] if one["name"] == "stuck"], told["jobs"]
