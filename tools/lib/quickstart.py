"""Trains the example through two daemons with two trainers each and checks what came out.

usage: quickstart.py PROGRAMS [--loopback]        the folder of the built programs; tools/quickstart calls it
"""

import csv
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cluster
from chart import chart

NODES, PER_NODE = 2, 2
JOB = "digits"
ACCURACY_LEAST = 95.0  # percent
TOLERANCE = "1e-4"     # of the loss curve; client/examples/README.md says why it is not 0
STEP_DELAY_MS = 10     # slows training down enough to look at it in the middle
TRAINING_SECONDS_MAX = 240
PROGRESS = re.compile(r"step +(\d+)/(\d+) .*")


def heading(text):
    print(f"\n== {text}", flush=True)


class Progress:
    """Training's state on one line of a terminal, or as a new line every second or two elsewhere."""

    def __init__(self, trainer):
        self._trainer = trainer
        self._shown = None
        self._shown_at = 0.0
        self.done, self.total = 0, 1

    def update(self):
        found = [match for match in map(PROGRESS.fullmatch, self._trainer.says().splitlines()) if match]
        line = found[-1][0] if found else "waiting for the first step"
        if found:
            self.done, self.total = int(found[-1][1]), int(found[-1][2])
        # Said again when it is old, so that one sees that somebody is still looking.
        if line == self._shown and time.monotonic() - self._shown_at < 3:
            return
        self._shown, self._shown_at = line, time.monotonic()
        bar = "#" * (30 * self.done // self.total)
        print(f"\r[{bar:<30}] {line}\x1b[K" if sys.stdout.isatty() else f"  {line}",
              end="" if sys.stdout.isatty() else "\n", flush=True)

    def pause(self):
        if sys.stdout.isatty():
            print()
        self._shown = None


def look(ring):
    """What the operator sees while it runs."""
    for words in (["status"], ["peers"], ["jobs"], ["job", JOB]):
        print(f"\n$ gradringctl {' '.join(words)}        # on node {ring.nodes[0].name}")
        _, out, err = ring.nodes[0].ctl(*words)
        print("\n".join(f"  {line}".rstrip() for line in (out + err).splitlines()), flush=True)
    segments = ring.remember_segments()
    print(f"\n  ({segments} shared segments are open now)\n", flush=True)


def train(ring, folder):
    """Runs the job to its end. Returns the trainers."""
    job = ring.launch(JOB, ["gradring-digits", "--step-delay-ms", str(STEP_DELAY_MS), "--loss-out",
                            str(folder / "ring.csv"), "--weights-out", str(folder / "rank%r.weights")],
                      per_node=PER_NODE)
    progress, looked = Progress(job[0]), False
    deadline = time.monotonic() + TRAINING_SECONDS_MAX
    while any(trainer.running() for trainer in job):
        progress.update()
        if not looked and progress.done * 2 >= progress.total:
            progress.pause()
            look(ring)
            looked = True
        if any(trainer.status for trainer in job):  # one failed: the others will be told by their daemons
            deadline = min(deadline, time.monotonic() + 20)
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    progress.update()
    progress.pause()
    for trainer in job:
        if trainer.status != 0:
            print(f"rank {trainer.rank} (node {trainer.node.name}, pid {trainer.pid}) "
                  f"{'still runs' if trainer.running() else f'ended with status {trainer.status}'}: "
                  f"{cluster.tail(trainer.err)}")
    return job


def losses_of(file):
    with open(file, newline="", encoding="ascii") as lines:
        return [float(row["loss"]) for row in csv.DictReader(lines)]


def judge(programs, folder, job):
    """The checks on what was trained, as (what, held, details)."""
    yield "all ranks ended well", all(trainer.status == 0 for trainer in job), f"{len(job)} ranks"
    said = re.search(r"test accuracy ([\d.]+) %", job[0].says())
    yield ("test accuracy", said is not None and float(said[1]) >= ACCURACY_LEAST,
           f"{said[1] if said else '-'} %, at least {ACCURACY_LEAST:g} % wanted")
    weights = [folder / f"rank{rank}.weights" for rank in range(len(job))]
    for what, words in (("loss curve equals one process's", ["losses", folder / "single.csv", folder / "ring.csv",
                                                             TOLERANCE]),
                        ("weights of all ranks are identical", ["same", *weights])):
        done = subprocess.run([programs / "gradring-digits-check", *words], capture_output=True, text=True,
                              timeout=30, check=False)
        yield what, done.returncode == 0, (done.stdout or done.stderr).strip()


def run(programs, folder, loopback):
    """Returns the checks as (what, held, details)."""
    network, reason = (cluster.Loopback, "--loopback says so") if loopback else cluster.best_network()
    heading("Train in one process, for comparison")
    single = subprocess.run([programs / "gradring-digits", "--single", "--loss-out", folder / "single.csv"],
                            capture_output=True, text=True, timeout=120, check=True)
    print("  " + single.stdout.splitlines()[-1])

    heading(f"Start {NODES} daemons, " + ("each in a network namespace of its own" if reason is None else
                                          f"on loopback ports, because {reason}"))
    checks = []
    ring = cluster.Cluster(programs, NODES, network)
    try:
        ring.start()
        for node in ring.nodes:
            print(f"  node {node.name}: gradringd pid {node.daemon.pid}, listens at {node.address}, "
                  f"runtime directory {node.runtime_dir}")
        heading(f"Train with {NODES} x {PER_NODE} ranks")
        job = train(ring, folder)
        checks += judge(programs, folder, job)
        if (folder / "ring.csv").exists():
            heading("Loss over the steps (logarithmic)")
            print(chart(losses_of(folder / "ring.csv")))
    finally:
        complaints = ring.close()
        print("\n".join(complaints))
    checks.append(("nothing left behind", not complaints,
                   "no process, segment, namespace or runtime directory" if not complaints else
                   f"{len(complaints)} complaints above"))
    return checks


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda which, _: sys.exit(128 + which))
    with tempfile.TemporaryDirectory(prefix="gradring-quickstart-") as folder:
        checks = run(Path(sys.argv[1]).resolve(), Path(folder), "--loopback" in sys.argv[2:])
    heading("Checks")
    width = max(len(what) for what, _, _ in checks)
    for what, held, details in checks:
        print(f"  {'OK  ' if held else 'FAIL'}  {what:<{width}}  {details}")
    good = all(held for _, held, _ in checks)
    print(f"\nquickstart: {'all of it held' if good else 'FAILED, see above'}")
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, RuntimeError, subprocess.SubprocessError, cluster.TookTooLong) as error:
        print(f"\nquickstart: FAILED: {error}", file=sys.stderr)
        sys.exit(1)
