"""What checksums, the flight recorder, a keeper and the records for a restart cost: the same allreduces with and without.

usage: bench_checksum.py [--programs DIR] [--nodes N] [--per-node R] [--megabytes M] [--iterations N] [--rounds N] [--rate RATE]

Two networks: loopback, where the processors are the limit, and namespaces on links of RATE (default 1gbit). For
each there is a ring of daemons for every variant: as shipped with `checksum = off`, with `checksum = on`, without a
flight recorder, with a keeper alone, and with a keeper and a restart-grace. They take turns, so that whatever else the machine does befalls
all of them; printed are the best time of each over all rounds, the processor time of all daemons for one allreduce, and
the ratios of both to the first. Needs root for the namespaces; one node needs none.
"""

import argparse
import contextlib
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402  (found by the line above)

VARIANTS = {"checksum off": {"checksum": "off"}, "checksum on": {"checksum": "on"},
            "no flight recorder": {"checksum": "off", "flight-recorder-size": "0"},
            "keeper alone": {"checksum": "off"},
            "records kept": {"checksum": "off", "restart-grace": "10s"}}
KEPT = ("keeper alone", "records kept")

WARMUP = 3


def start(ring, flags):
    for index, node in enumerate(ring.nodes):
        ring.processes.append(node.run_daemon(*flags))
        node.wait_ready(index)
    return ring


def measure(ring, per_node, size, iterations, turn):
    """(median time of one allreduce, processor time of all daemons for one), in seconds."""
    results = ring.folder / f"perf-{turn}.json"
    words = ["gradring-perf", "allreduce", "--min", str(size), "--max", str(size), "--dtype", "float32", "--op",
             "sum", "--iters", str(iterations), "--warmup", str(WARMUP), "--json", str(results)]
    before = sum(testbed.cpu_seconds(node.daemon_pid()) for node in ring.nodes)
    job = ring.launch(f"bench-{turn}", words, per_node=per_node)
    statuses = job.wait(300)
    used = sum(testbed.cpu_seconds(node.daemon_pid()) for node in ring.nodes) - before
    if any(statuses):
        sys.exit(f"gradring-perf: {statuses}\n{job[0].complains()}")
    took = json.loads(results.read_text())["results"][0]["time_seconds"]
    return took, used / (iterations + WARMUP)


def compare(options, network, title, rate):
    with contextlib.ExitStack() as stack:
        rings = {}
        for name, settings in VARIANTS.items():
            ring = stack.enter_context(testbed.Cluster(options.programs, options.nodes, network, settings=settings))
            if rate:
                ring.network.shape(rate)
            rings[name] = start(ring, ["--keep"] if name in KEPT else [])
        for size in (options.megabytes << 20, 64 << 10):
            iterations = options.iterations if size > 1 << 20 else options.iterations * 20
            times = {name: [] for name in rings}
            for turn in range(options.rounds):
                # Each goes first as often as the others.
                order = list(rings)[turn % len(rings):] + list(rings)[:turn % len(rings)]
                for name in order:
                    times[name].append(measure(rings[name], options.per_node, size, iterations, f"{size}-{turn}"))
            best = {name: (min(t for t, _ in taken), sum(c for _, c in taken) / len(taken))
                    for name, taken in times.items()}
            first = best["checksum off"]
            for name, (took, cpu) in best.items():
                print(f"{title:<15} {size >> 10:>6} KiB  {name:<19} {took * 1e3:>9.3f} ms {took / first[0] - 1:+7.1%}  "
                      f"processors {cpu * 1e3:>9.3f} ms {cpu / first[1] - 1:+7.1%}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--per-node", type=int, default=1, help="trainers of each")
    parser.add_argument("--megabytes", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--rate", default="1gbit")
    options = parser.parse_args()
    compare(options, testbed.Loopback, "loopback", None)
    if options.nodes == 1:
        return 0
    reason = testbed.why_no_namespaces()
    if reason:
        sys.exit(f"bench_checksum: the links need network namespaces: {reason}")
    compare(options, testbed.Namespaces, f"links of {options.rate}", options.rate)
    return 0


if __name__ == "__main__":
    sys.exit(main())
