"""What it brings that small frames share messages: the same small allreduces with `bundle-bytes` as shipped and without.

usage: bench_bundles.py [--programs DIR] [--nodes N] [--bundle-bytes SIZE]... [--rounds N] [--namespaces]

A ring of daemons with a rank each for every length of bundles, 0 among them (each frame has its own message), on
loopback or in network namespaces. They take turns, so that whatever else the machine does befalls all of them. Printed
are, for ops alone and for many submitted together, the medians over all rounds of the time of one, of the processor
time of one daemon for it, the ratios of both to those without, and how many messages a daemon sent for one.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402  (found by the line above)

CASES = [(1024, 1), (256, 64), (1024, 64), (1024, 256), (4096, 256), (8192, 256)]
OPS = 8192  # timed in each round


def messages(ring):
    time.sleep(0.6)  # the daemons renew their counters some times a second
    return ring.nodes[0].ask("status")["counters"]["messages_sent"]


def measure(ring, size, together, turn):
    """(time of one op, processor time of one daemon for it, in seconds; messages of that daemon for it)."""
    results = ring.folder / f"perf-{size}-{together}-{turn}.json"
    iterations = max(OPS // together // (4 if together == 1 else 1), 1)
    words = ["gradring-perf", "allreduce", "--min", str(size), "--max", str(size), "--together", str(together),
             "--iters", str(iterations), "--warmup", "2", "--json", str(results)]
    before = messages(ring)
    used = testbed.cpu_seconds(ring.nodes[0].daemon_pid())
    job = ring.launch(f"bench-{size}-{together}-{turn}", words)
    statuses = job.wait(300)
    if any(statuses):
        sys.exit(f"gradring-perf: {statuses}\n{job[0].complains()}")
    used = testbed.cpu_seconds(ring.nodes[0].daemon_pid()) - used
    sent = messages(ring) - before
    ops = (iterations + 2) * together
    return json.loads(results.read_text())["results"][0]["time_seconds"], used / ops, sent / ops


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--bundle-bytes", action="append", metavar="SIZE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--namespaces", action="store_true")
    options = parser.parse_args()
    network = testbed.Namespaces if options.namespaces else testbed.Loopback
    with contextlib.ExitStack() as stack:
        rings = {}
        for size in ["0"] + (options.bundle_bytes or ["16K"]):
            rings[size] = stack.enter_context(testbed.Cluster(options.programs, options.nodes, network,
                                                              settings={"bundle-bytes": size}))
            rings[size].start()
        for size, together in CASES:
            taken = {name: [] for name in rings}
            for turn in range(options.rounds):
                # Each goes first as often as the others.
                order = list(rings)[turn % len(rings):] + list(rings)[:turn % len(rings)]
                for name in order:
                    taken[name].append(measure(rings[name], size, together, turn))
            medians = {name: [statistics.median(column) for column in zip(*rounds)] for name, rounds in taken.items()}
            for name, (took, used, sent) in medians.items():
                print(f"{together:>4} x {size:>5} B  bundle-bytes {name:<4} {took * 1e6:>8.1f} us an op, "
                      f"{took / medians['0'][0]:5.2f} of that without; {used * 1e6:6.1f} us of a processor, "
                      f"{used / medians['0'][1]:5.2f}; {sent:5.2f} messages", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
