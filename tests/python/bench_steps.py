"""Where the time of a step goes, as the daemon says without a second run, beside the experiment that says it with one: the same
steps with an exchange in each and in none. bench_steps.py [STEPS]
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402

# What it is, milliseconds of input and of computing, elements, milliseconds that one rank is late.
CASES = [
    ("small gradients", 0, 40, 1000, 0),
    ("8 MB, 1 Gbit/s", 0, 40, 2_000_000, 0),
    ("and slow input", 30, 40, 2_000_000, 0),
    ("and a slow rank", 0, 40, 2_000_000, 30),
]


def run(ring, case, every, steps):
    _, wait, compute, elements, late = case
    command = ["/usr/bin/env", "OMP_NUM_THREADS=1", f"GRADRINGCTL={ring.program('gradringctl')}", sys.executable,
               ROOT / "tests/python/trainers/steps.py", "-", wait, compute, elements, every, late, steps]
    job = ring.launch(f"steps-{every}", [str(word) for word in command], per_node=1)
    assert job.wait(300) == [0] * len(job), [one.complains()[-1500:] for one in job]
    return json.loads(job[0].says())


def main(steps=60):
    with testbed.Cluster(ROOT / "build/bin", 2, network=testbed.Namespaces) as ring:
        ring.network.shape()
        ring.start()
        print(f"{'percent of a step, rank 0':26} {'waits: experiment':>18} {'told':>6} {'of that straggler':>18} {'told':>6} "
              f"{'input':>6} {'told':>6}")
        worst = 0
        for case in CASES:
            name, wait, _, _, late = case
            alone = run(ring, case[:4] + (0,), 1_000_000, steps)["step"]
            even = run(ring, case[:4] + (0,), 1, steps)["step"]
            told = run(ring, case, 1, steps)
            whole, mean = told["step"], told["ranks"][0]
            total = sum(mean[part] for part in ("compute", "input", "straggler", "exposed"))
            pairs = [((whole - alone) / whole, (mean["straggler"] + mean["exposed"]) / total),
                     ((whole - even) / whole if late else 0, mean["straggler"] / total),
                     (wait / 1e3 / whole, mean["input"] / total)]
            worst = max([worst, *(abs(a - b) for a, b in pairs)])
            texts = [f"{100 * value:.1f}" for pair in pairs for value in pair]
            print(f"{name:26} {texts[0]:>18} {texts[1]:>6} {texts[2]:>18} {texts[3]:>6} {texts[4]:>6} {texts[5]:>6}")
        print(f"furthest apart: {100 * worst:.1f} points")


if __name__ == "__main__":
    main(*[int(word) for word in sys.argv[1:]])
