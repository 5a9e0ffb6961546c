"""The example trains a real model through two daemons as it does alone."""

import re
import subprocess

TOLERANCE = "1e-4"  # client/examples/README.md


def check(programs, *words):
    done = subprocess.run([programs / "gradring-digits-check", *words], capture_output=True, text=True, timeout=30,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_four_ranks_train_as_one_process_does(pair, programs, tmp_path):
    subprocess.run([programs / "gradring-digits", "--single", "--loss-out", tmp_path / "alone.csv"], check=True,
                   timeout=120, capture_output=True)
    job = pair.launch("digits", ["gradring-digits", "--loss-out", str(tmp_path / "ring.csv"),
                                 "--weights-out", str(tmp_path / "weights-%r.bin")], per_node=2)
    assert job.wait(120) == [0] * 4, [one.complains() for one in job]
    accuracy = float(re.search(r"test accuracy ([\d.]+) %", job[0].says())[1])
    assert accuracy >= 95
    check(programs, "losses", tmp_path / "alone.csv", tmp_path / "ring.csv", TOLERANCE)
    check(programs, "same", *(tmp_path / f"weights-{rank}.bin" for rank in range(4)))
