"""tools/chaos itself: a short run of each kind. Long ones are started by hand; docs/reliability.md has their totals."""

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mode", [[], ["--kills"]])
def test_a_short_run_holds(programs, namespaces, tmp_path, figure, mode):
    totals = tmp_path / "totals.json"
    done = subprocess.run([ROOT / "tools/chaos", "--minutes", "0.2", "--seed", "2", "--programs", programs,
                           "--totals", totals, *mode], capture_output=True, text=True, timeout=240, check=False)
    last = done.stdout.splitlines()[-1] if done.stdout else done.stderr
    assert done.returncode == 0 and "all held" in last, done.stdout[-3000:] + done.stderr[-1000:]
    known = json.loads(totals.read_text())
    (run,) = known["runs"][-1:]
    assert run["held"] and known["verdicts"] > 100 and run["faults"] >= 3
    figure(f"chaos {' '.join(mode) or 'balanced'}: {run['faults']} faults, {run['verdicts']} verdicts: {last}")


def test_a_run_that_is_ended_leaves_no_network(programs, namespaces, tmp_path):
    run = subprocess.Popen([ROOT / "tools/chaos", "--minutes", "5", "--programs", programs, "--totals", tmp_path / "totals.json"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    spaces = list_of_spaces(run.pid, lambda: run.stdout.readline())
    assert spaces, "it has begun"
    run.terminate()
    said = run.communicate(timeout=60)[0]
    assert run.returncode == 143, said[-1000:]
    assert not list_of_spaces(run.pid)


def list_of_spaces(pid, wait=lambda: None):
    """Those of this process, once it has said something."""
    wait()
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
    return [name for name in listed if name.startswith(f"gradring-{pid}-")]
