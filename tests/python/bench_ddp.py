"""Steps of DDP by gradring beside those by Gloo: bench_ddp.py [NODES [RANKS-A-NODE [MBIT [ROUNDS]]]]

Medians of interleaved rounds in one job. `efficiency` is computing alone : step. The bound is a step whose exchange
hides behind the computing, or the other way round, but for the forward pass. The exchange takes as long as the line
needs for 2(n-1)/n of the gradients, 1448 of 1514 bytes being payload; inside one node it takes no time. `copies` are
those of a byte of the gradients in a step, by torch and by gradring; the sum itself, which the daemon does, is none.
"""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402

FORWARD = 1 / 3  # of computing
STEPS = 2  # in a row
MOST = 550  # seconds


def measure(nodes, per_node, mbit, rounds):
    script = ROOT / "tests/python/trainers/ddp_speed.py"
    with testbed.Cluster(ROOT / "build/bin", nodes, network=testbed.Namespaces) as ring:
        with testbed.cubic(ring.network, nodes):
            if nodes > 1:
                ring.network.shape(f"{mbit}mbit")
            ring.start()
            command = ["/usr/bin/env", "OMP_NUM_THREADS=1", "PYTHONWARNINGS=ignore", "GLOO_SOCKET_IFNAME=eth0",
                       sys.executable, script, ring.folder / "store", str(rounds), str(STEPS)]
            job = ring.launch("speed", command, per_node=per_node)
            statuses = job.wait(MOST)
            assert statuses == [0] * len(job), [one.complains()[-1500:] for one in job]
            return next(json.loads(line) for line in job[0].says().splitlines() if line.startswith("{"))


def bound(told, nodes, mbit, wire=1.0):
    """Seconds of a step. `wire`: bytes that travel for each of the gradients."""
    alone = told["seconds"]["alone"]
    line = 2 * (nodes - 1) / nodes * told["bytes"] * wire * 8 / (mbit * 1e6 * 1448 / 1514)
    return max(alone, FORWARD * alone + line)


def main(nodes=4, per_node=1, mbit=1000, rounds=5):
    told = measure(nodes, per_node, mbit, rounds)
    seconds, copies = told["seconds"], told["copies"]
    alone, gloo = seconds["alone"], seconds["gloo"]
    link = f", {mbit} Mbit/s" if nodes > 1 else ""
    print(f"{nodes} x {per_node}{link}; {told['bytes'] / 4e6:.1f} M parameters, batches of {told['rows']} rows a rank; "
          f"{os.cpu_count()} processors; load {os.getloadavg()[0]:.1f} at the end\n"
          f"computing alone {1e3 * alone:.0f} ms a step\n\n"
          f"{'':<26} {'ms':>6} {'rate : Gloo':>12} {'efficiency':>11} {'bound, ms':>10} {'of bound':>9} {'copies':>12}")
    for name in copies:
        taken = seconds[name]
        least = bound(told, nodes, mbit, 0.5 if "bf16" in name else 1)
        print(f"{name:<26} {1e3 * taken:>6.0f} {gloo / taken:>12.2f} {alone / taken:>10.0%} {1e3 * least:>10.0f} "
              f"{least / taken:>9.0%} {copies[name]['torch']:>5.1f} + {copies[name]['gradring']:.1f}")


if __name__ == "__main__":
    main(*[int(word) for word in sys.argv[1:]])
