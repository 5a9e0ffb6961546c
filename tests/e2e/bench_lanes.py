"""What a second network card brings.

usage: bench_lanes.py [--programs DIR] [--nodes N] [--rate RATE] [--megabytes M] [--iterations N]

Namespaces with two cards each, every card on a link of the given rate. Allreduces of float32 over one lane and over
two, side by side: two rings of daemons live at the same time and take turns. Exit status 0 if two lanes carry at least
1.9 times what one does. Needs root.
"""

import argparse
import functools
import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402  (found by the line above)

RATIO_LEAST = 1.9
ROUNDS = 5


def bus_bandwidth(ring, name, size, iterations):
    """In bit/s, of one run of gradring-perf."""
    results = ring.folder / f"{name}.json"
    job = ring.launch(name, ["gradring-perf", "allreduce", "--min", str(size), "--max", str(size), "--dtype",
                             "float32", "--op", "sum", "--iters", str(iterations), "--warmup", "2", "--json",
                             str(results)])
    statuses = job.wait(300)
    if any(statuses):
        sys.exit(f"gradring-perf: {statuses}\n{job[0].complains()}")
    took = json.loads(results.read_text())["results"][0]["time_seconds"]
    return 2 * (len(ring.nodes) - 1) / len(ring.nodes) * size * 8 / took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rate", default="500mbit")
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=3)
    options = parser.parse_args()
    reason = testbed.why_no_namespaces()
    if reason:
        sys.exit(f"bench_lanes: needs network namespaces: {reason}")

    network = functools.partial(testbed.Namespaces, cards=2)
    size = options.megabytes << 20
    rings = {}
    try:
        for lanes in (1, 2):
            rings[lanes] = testbed.Cluster(options.programs, options.nodes, network,
                                           settings={"net-device": ["eth0", "eth1"][:lanes]})
            rings[lanes].network.shape(options.rate)
            rings[lanes].start()
        print(f"allreduce of {options.megabytes} MiB float32, {options.nodes} nodes, {options.rate} a card, bus bandwidth:")
        ratios = []
        for turn in range(ROUNDS):
            got = {lanes: bus_bandwidth(ring, f"lanes-{lanes}-{turn}", size, options.iterations)
                   for lanes, ring in rings.items()}
            ratios.append(got[2] / got[1])
            print(f"  one lane {got[1] / 1e6:6.0f} Mbit/s   two lanes {got[2] / 1e6:6.0f} Mbit/s   "
                  f"{ratios[-1]:.2f} times", flush=True)
    finally:
        for ring in rings.values():
            ring.close()
    ratio = statistics.median(ratios)
    print(f"{'OK  ' if ratio >= RATIO_LEAST else 'MISS'}  two lanes carry {ratio:.2f} times what one does "
          f"(median of {ROUNDS}; at least {RATIO_LEAST})")
    return 0 if ratio >= RATIO_LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
