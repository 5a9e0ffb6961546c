"""What it costs to be watched: sums of one size after another, with and without metrics, flight recorder and a trace.

usage: bench_watching.py [--programs DIR] [--nodes N] [--rounds N]

Four rings of daemons on loopback live at the same time and take turns, so that whatever else the machine does befalls all:
one keeps nothing, nor does another, by which one sees what equal rings differ by, one has the flight recorder (as by
default) and metrics that Prometheus reads each second, and one is traced besides. Where Prometheus is not installed, this
program reads the pages in its place. Printed are, by size, the time of an op and the daemon's processor time for it, and the
ratios to the first ring: medians of the rounds' own, each of which compares neighbours in time, with the limits between
which the true median lies 95 times of 100. Exit status 0 if no median is above 1.02, and above what equal rings differ by:
where the limits are far apart, take more rounds, or a machine that is quieter.
"""

import argparse
import contextlib
import json
import statistics
import sys
import threading
import urllib.request
from pathlib import Path

from monitor import ROOT, Monitored, testbed, why_no_prometheus

RATIO_MOST = 1.02
# Size, together, iterations: some tenths of a second. A run has a speed of its own, by where its processes come to lie,
# so that many short ones tell more than a few long ones.
CASES = [(1024, 1, 5000), (1024, 64, 250), (1 << 20, 1, 200), (32 << 20, 1, 10)]


def measure(ring, name, size, together, iterations):
    """(seconds of an op, processor seconds of a daemon for it)."""
    results = ring.folder / f"{name}.json"
    used = testbed.cpu_seconds(ring.nodes[0].daemon_pid())
    job = ring.launch(name, ["gradring-perf", "allreduce", "--min", str(size), "--max", str(size), "--together",
                             str(together), "--iters", str(iterations), "--warmup", "2", "--json", str(results)])
    statuses = job.wait(300)
    if any(statuses):
        sys.exit(f"gradring-perf: {statuses}\n{job[0].complains()}")
    used = testbed.cpu_seconds(ring.nodes[0].daemon_pid()) - used
    return json.loads(results.read_text())["results"][0]["time_seconds"], used / (iterations + 2) / together


def median_and_limits(values):
    """Limits by ranks (the sign test), whatever the values are spread like."""
    ordered = sorted(values)
    reach = round(0.98 * len(ordered) ** 0.5)
    middle = (len(ordered) - 1) // 2
    return statistics.median(ordered), ordered[max(middle - reach, 0)], ordered[min(middle + 1 + reach, len(ordered) - 1)]


def read_each_second(monitored, over):
    def read():
        while not over.wait(1):
            for address in monitored.addresses:
                urllib.request.urlopen(f"http://{address}/metrics", timeout=20).read()
    threading.Thread(target=read, daemon=True).start()


class Rings:
    """Rings on loopback that live at the same time: nothing is watched, everything but a trace is, everything is."""

    def __init__(self, options, stack):
        self.over = threading.Event()
        self.by_name = {}
        reason = why_no_prometheus()
        if reason:
            print(f"read by this program: {reason}")
        for name in ("without", "equal", "watched", "traced"):
            ring = stack.enter_context(testbed.Cluster(options.programs, options.nodes))
            self.by_name[name] = ring
            if name in ("without", "equal"):
                for node in ring.nodes:
                    ring.configure(node, flight_recorder_size="0")
                ring.start()
                continue
            monitored = Monitored(ring, watch=not reason)
            if reason:
                read_each_second(monitored, self.over)
        status, _, complaint = self.by_name["traced"].nodes[0].ctl("trace", "start")  # on all of its nodes
        if status:
            sys.exit(complaint)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=160)
    options = parser.parse_args()
    worst = 0
    with contextlib.ExitStack() as stack:
        rings = Rings(options, stack)
        names = list(rings.by_name)
        for size, together, iterations in CASES:
            took, used = {name: [] for name in names}, {name: [] for name in names}
            for turn in range(options.rounds):
                first = turn % len(names)  # each goes first as often as the others
                for name in names[first:] + names[:first]:
                    one = measure(rings.by_name[name], f"bench-{name}-{size}-{together}-{turn}", size, together, iterations)
                    took[name].append(one[0])
                    used[name].append(one[1])
            print(f"{together:>3} x {size:>9} B   {statistics.median(took['without']) * 1e6:9.1f} us, "
                  f"processor {statistics.median(used['without']) * 1e6:8.1f} us", end="")
            by_chance = 1
            for name in names[1:]:
                ratio, low, high = median_and_limits([a / b for a, b in zip(took[name], took["without"])])
                if name == "equal":
                    by_chance = max(ratio, 1 / ratio)
                else:
                    worst = max(worst, ratio / by_chance)
                print(f"; {name} {ratio:.3f} ({low:.3f} to {high:.3f}), {statistics.median(used[name]) * 1e6:8.1f} us", end="")
            print(flush=True)
        rings.over.set()
    print(f"{'OK  ' if worst <= RATIO_MOST else 'MISS'}  the largest ratio is {worst:.3f} of what equal rings differ by; "
          f"at most {RATIO_MOST}")
    return 0 if worst <= RATIO_MOST else 1


if __name__ == "__main__":
    sys.exit(main())
