"""The first thing a stranger runs: tools/quickstart, apart from installing and building."""

import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from cluster import TookTooLong, wait_until
from conftest import ROOT

SILENT_SECONDS_MAX = 5


class Quickstart:
    """A run of it without a terminal, read as it speaks. Its processes are marked, so that what is left shows."""

    def __init__(self, programs, *words):
        self.began = self.spoke = time.monotonic()
        self.longest_silence = 0.0
        self.said = ""
        self._popen = subprocess.Popen([sys.executable, ROOT / "tools/lib/quickstart.py", programs, *words],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       start_new_session=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        os.set_blocking(self._popen.stdout.fileno(), False)
        self.pid = self._popen.pid

    def listen(self):
        """Takes what it has said meanwhile; its exit status once it has ended."""
        status = self._popen.poll()  # before reading, so that the last words are not missed
        words = self._popen.stdout.read()
        now = time.monotonic()
        self.longest_silence = max(self.longest_silence, now - self.spoke)
        if words:
            self.said += words.decode()
            self.spoke = now
        return status

    def hear(self, text, seconds=60):
        wait_until(lambda: self.listen() is not None or text in self.said, seconds, f"quickstart says '{text}'")
        assert text in self.said, self.said

    def end(self, seconds=120):
        wait_until(lambda: self.listen() is not None, seconds, f"quickstart ends; it said:\n{self.said}")
        self._popen.stdout.close()
        return self._popen.returncode

    def kill_if_running(self):
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGTERM)
            try:
                self._popen.wait(20)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                raise TookTooLong("quickstart did not end at SIGTERM") from None


@pytest.fixture
def start(programs):
    runs = []

    def begin(*words):
        runs.append(Quickstart(programs, *words))
        return runs[-1]
    yield begin
    for run in runs:
        run.kill_if_running()


def alive(pids):
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


@pytest.mark.parametrize("words", [[], ["--loopback"]], ids=["as-root", "loopback"])
def test_all_of_it_holds(start, words):
    run = start(*words)
    assert run.end() == 0, run.said
    checks = re.findall(r"(?m)^  (OK  |FAIL)  (.*)$", run.said)
    assert len(checks) == 5 and all(mark == "OK  " for mark, _ in checks), run.said
    for shown in ("gradringctl status", "gradringctl peers", "gradringctl jobs", "gradringctl job digits", "|*"):
        assert shown in run.said
    assert run.longest_silence < SILENT_SECONDS_MAX


def test_interrupted_it_leaves_nothing(start):
    run = start()
    run.hear("/690")  # it trains
    daemons = [int(pid) for pid in re.findall(r"gradringd pid (\d+)", run.said)]
    folders = re.findall(r"runtime directory (\S+)", run.said)
    assert len(daemons) == len(folders) == 2 and alive(daemons) == daemons
    os.kill(run.pid, signal.SIGTERM)
    assert run.end(30) == 128 + signal.SIGTERM, run.said
    assert not alive(daemons)
    assert not [folder for folder in folders if os.path.exists(folder)]
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    assert f"gradring-{run.pid}-" not in namespaces


def by_hand():
    """The commands of README.md after those that build, as they stand there."""
    text = (ROOT / "README.md").read_text().split("By hand:", 1)[1].split("\n\nPackages", 1)[0]
    return [line.strip() for line in text.splitlines() if line.startswith("    ") and "cmake" not in line and "tools/" not in line]


def test_the_commands_by_hand_may_be_pasted_as_they_stand(programs, tmp_path):
    commands = "\n".join(by_hand()).replace("build/bin", str(programs)).replace("/tmp/gradring", str(tmp_path))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    leaving_nothing = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"
    done = subprocess.run(["bash", "-emc", f"{leaving_nothing}\n{commands}\nwait"], capture_output=True, text=True, timeout=120,
                          check=False, env={**os.environ, "GRADRING_LISTEN": address})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# Wrong values: 0 OK" in done.stdout and "ready" in done.stdout, done.stdout + done.stderr
