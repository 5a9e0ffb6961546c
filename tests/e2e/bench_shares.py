"""How two jobs share a wire, by their weights.

usage: bench_shares.py [--programs DIR] [--rate RATE] [--megabytes M [M]] [--seconds S] [--weights A:B ...]

Two namespaces with a link of the given rate between them. Two jobs with one trainer each on either node do allreduces
of float32 without a pause; what each did in so many seconds is what its daemon counted. Needs root.
"""

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402  (found by the line above)

FOR_EVER = 1_000_000  # iterations
SETTLE_SECONDS = 3


def done(node, jobs):
    """Ops of each job so far, and when that was."""
    answer = {one["name"]: one["ops_completed"] for one in node.ask("jobs")["jobs"]}
    return [answer.get(job, 0) for job in jobs], time.monotonic()


def measure(ring, sizes, weights, seconds):
    """Bus bandwidth of each job in bit/s."""
    node = ring.nodes[0]
    names = [f"share-{weights[0]}-{weights[1]}-{index}" for index in range(len(sizes))]
    jobs = [ring.launch(name, ["gradring-perf", "allreduce", "--min", str(size), "--max", str(size), "--dtype", "float32",
                               "--op", "sum", "--iters", str(FOR_EVER), "--warmup", "0"])
            for name, size in zip(names, sizes)]
    try:
        testbed.wait_until(lambda: min(done(node, names)[0]) > 2, 120, "both jobs are at work")
        for name, weight in zip(names, weights):
            node.ask("set", name, f"weight={weight}")
        time.sleep(SETTLE_SECONDS)
        (before, began), _ = done(node, names), time.sleep(seconds)
        after, ended = done(node, names)
    finally:
        for job in jobs:
            job.kill()
    testbed.wait_until(lambda: not [one for one in node.ask("jobs")["jobs"] if one["state"] == "running"], 30, "they ended")
    nodes = len(ring.nodes)
    return [2 * (nodes - 1) / nodes * size * 8 * (late - early) / (ended - began)
            for size, early, late in zip(sizes, before, after)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[4, 4])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--weights", nargs="+", default=["1:1", "1:4"])
    options = parser.parse_args()
    reason = testbed.why_no_namespaces()
    if reason:
        sys.exit(f"bench_shares: needs network namespaces: {reason}")
    sizes = [int(megabytes * (1 << 20)) for megabytes in options.megabytes]
    ring = testbed.Cluster(options.programs, 2, testbed.Namespaces)
    try:
        ring.network.shape(options.rate)
        ring.start()
        for pair in options.weights:
            weights = [int(weight) for weight in pair.split(":")]
            rates = measure(ring, sizes, weights, options.seconds)
            print(f"weights {pair}: {' and '.join(f'{rate / 1e6:.0f}' for rate in rates)} Mbit/s, "
                  f"1:{rates[1] / rates[0]:.2f}, together {sum(rates) / 1e6:.0f}", flush=True)
    finally:
        ring.close()


if __name__ == "__main__":
    main()
