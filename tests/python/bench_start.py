"""How soon a job's first allreduce is done on warm daemons: bench_start.py [NODES [RANKS-A-NODE]]

The same job is started several times, as new processes under the same name. And what Python costs for a bucket.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402

STARTS = 4


def start(ring, number, per_node):
    command = ["/usr/bin/env", "OMP_NUM_THREADS=1", "PYTHONWARNINGS=ignore", sys.executable,
               ROOT / "tests/python/trainers/start_speed.py", ring.folder / f"store-{number}"]
    job = ring.launch("start", command, per_node=per_node)
    statuses = job.wait(200)
    assert statuses == [0] * len(job), [one.complains()[-1500:] for one in job]
    return [json.loads(line) for one in job for line in one.says().splitlines() if line.startswith("{")]


def main(nodes=2, per_node=2):
    with testbed.Cluster(ROOT / "build/bin", nodes, network=testbed.Namespaces) as ring:
        ring.start()
        print(f"{nodes} x {per_node}, the slowest rank, ms\n"
              f"{'start':>5} {'init_process_group':>20} {'first allreduce':>16} {'together':>9}")
        for number in range(1, STARTS + 1):
            ranks = start(ring, number, per_node)
            for one in ranks:
                one["together"] = one["init"] + one["first"]
            slowest = [1e3 * max(one[part] for one in ranks) for part in ("init", "first", "together")]
            print(f"{number:>5} {slowest[0]:>20.1f} {slowest[1]:>16.1f} {slowest[2]:>9.1f}")
        print(f"\nprocessor time for a bucket, us: {'starts it':>10} {'ends it':>10}")
        for name in ("allreduce", "hook"):
            starts, ends = (1e6 * min(one[name][part] for one in ranks) for part in (0, 1))
            print(f"{name:>32} {starts:>10.0f} {ends:>10.0f}")


if __name__ == "__main__":
    main(*[int(word) for word in sys.argv[1:]])
