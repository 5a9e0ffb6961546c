"""Steps of DDP by gradring beside those by Gloo: bench_ddp.py [NODES [RANKS-A-NODE [MBIT]]]

Medians of interleaved rounds in one job. The bound is a step whose exchange hides behind the computing, or the
other way round, but for the forward pass. The exchange takes as long as the line needs for 2(n-1)/n of the gradients,
1448 of 1514 bytes being payload.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402

FORWARD = 1 / 3  # of computing


def main(nodes=4, per_node=1, mbit=1000):
    script = ROOT / "tests/python/trainers/ddp_speed.py"
    for wire in ("native", "bf16"):
        with testbed.Cluster(ROOT / "build/bin", nodes, network=testbed.Namespaces) as ring:
            with testbed.cubic(ring.network, nodes):
                if nodes > 1:
                    ring.network.shape(f"{mbit}mbit")
                ring.start()
                command = ["/usr/bin/env", "OMP_NUM_THREADS=1", "PYTHONWARNINGS=ignore", "GLOO_SOCKET_IFNAME=eth0",
                           f"GRADRING_WIRE={wire}", sys.executable, script, ring.folder / "store", "5", "3"]
                job = ring.launch("speed", command, per_node=per_node)
                statuses = job.wait(600)
                assert statuses == [0] * len(job), [one.complains()[-1500:] for one in job]
                told = next(json.loads(line) for line in job[0].says().splitlines() if line.startswith("{"))
        line = 0.0
        if nodes > 1:
            factor = {"native": 1, "bf16": 0.5}[wire]
            line = 2 * (nodes - 1) / nodes * 4 * told["parameters"] * factor * 8 / (mbit * 1e6 * 1448 / 1514)
        bound = max(told["alone"], FORWARD * told["alone"] + line)
        print(f"{nodes} x {per_node}, {mbit} Mbit/s, {told['parameters'] / 1e6:.1f} M parameters, wire {wire}: "
              f"computing {1e3 * told['alone']:.0f} ms, bound {1e3 * bound:.0f} ms, "
              f"gradring {1e3 * told['gradring']:.0f} ms ({100 * bound / told['gradring']:.0f} % of the bound), "
              f"gloo {1e3 * told['gloo']:.0f} ms; gloo : gradring {told['gloo'] / told['gradring']:.2f}")


if __name__ == "__main__":
    main(*[int(word) for word in sys.argv[1:]])
