"""What a thread that sends brings where the network is faster than one thread.

usage: bench_send_thread.py [--programs DIR] [--nodes N] [--sizes BYTES,...] [--rounds N]

Namespaces whose links are not limited. Allreduces of float32 in two rings of daemons that live at the same time and take
turns, one with tcp-send-thread and one without. Of each: the time of an op; of the daemons' processor time for each GB of
gradients what the busiest thread has, which bounds a node whose processors are idle, and what all threads have. Where
nodes and their threads are more than processors the time of an op says little. Needs root.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402  (found by the line above)

WAYS = ("off", "on")
ENOUGH_BYTES = 1 << 30  # in a round


def thread_seconds(pid):
    """Processor time of each thread so far."""
    return {task.name: int((task / "schedstat").read_text().split()[0]) / 1e9 for task in Path(f"/proc/{pid}/task").iterdir()}


def measure(ring, name, size):
    """Seconds of an op, and of processors for each GB: of the busiest thread, and of a node's daemon."""
    iterations = max(5, ENOUGH_BYTES // size // len(ring.nodes))
    results = ring.folder / f"{name}.json"
    before = [thread_seconds(node.daemon_pid()) for node in ring.nodes]
    job = ring.launch(name, ["gradring-perf", "allreduce", "--min", str(size), "--max", str(size), "--dtype", "float32",
                             "--op", "sum", "--iters", str(iterations), "--warmup", "2", "--json", str(results)])
    statuses = job.wait(300)
    if any(statuses):
        sys.exit(f"gradring-perf: {statuses}\n{job[0].complains()}")
    gigabytes = size * (iterations + 2) / 1e9
    used = []
    for node, at_first in zip(ring.nodes, before):
        used.append([now - at_first.get(thread, 0) for thread, now in thread_seconds(node.daemon_pid()).items()])
    took = json.loads(results.read_text())["results"][0]["time_seconds"]
    return (took, statistics.mean(max(threads) for threads in used) / gigabytes,
            statistics.mean(sum(threads) for threads in used) / gigabytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--sizes", default=f"{1 << 20},{16 << 20},{64 << 20}")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    reason = testbed.why_no_namespaces()
    if reason:
        sys.exit(f"bench_send_thread: needs network namespaces: {reason}")

    rings = {}
    try:
        for way in WAYS:
            rings[way] = testbed.Cluster(options.programs, options.nodes, testbed.Namespaces,
                                         settings={"tcp-send-thread": way}).start()
        print(f"{options.nodes} nodes, {os.cpu_count()} processors; medians of {options.rounds}")
        print(f"{'size':>9}  {'send thread':11}  {'ms an op':>9}  {'busiest thread s/GB':>19}  {'daemon s/GB':>11}")
        for size in (int(text) for text in options.sizes.split(",")):
            got = {way: [] for way in WAYS}
            for turn in range(options.rounds):
                for way in WAYS if turn % 2 == 0 else reversed(WAYS):
                    got[way].append(measure(rings[way], f"{way}-{size}-{turn}", size))
            for way in WAYS:
                took, busiest, all_threads = (statistics.median(column) for column in zip(*got[way]))
                print(f"{size >> 10:6} KiB  {way:11}  {took * 1e3:9.2f}  {busiest:19.3f}  {all_threads:11.3f}", flush=True)
    finally:
        for ring in rings.values():
            ring.close()


if __name__ == "__main__":
    main()
