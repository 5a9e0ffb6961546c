"""Makes the pictures of docs/operate: gradringctl's answers beside a job on four nodes, and some steps of its trace.

usage: draw_operate.py [--programs DIR] OUT_FOLDER     needs root, and pyte, Pillow and matplotlib in this Python

The links carry 1 Gbit/s, and one rank computes four times as long as the others: something is to be seen.
"""

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/lib"), str(ROOT / "tools/docs")]

import cluster as testbed  # noqa: E402  (found by the line above)
import terminal  # noqa: E402
import timeline  # noqa: E402
from checks import TRAINER, wait_for_all  # noqa: E402

JOB = "resnet50"
SLOW = 5
PICTURES = {"status": ["status"], "peers": ["peers"], "job": ["job", JOB], "topology": ["topology"],
            "bandwidth": ["bandwidth", "--seconds", "3"], "top": ["top", "--once", "--all", "--size", "110x30"],
            "doctor": ["doctor", "--seconds", "3"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    if testbed.why_no_namespaces():
        sys.exit(testbed.why_no_namespaces())
    options.out.mkdir(parents=True, exist_ok=True)
    with testbed.Cluster(options.programs, 4, testbed.Namespaces) as ring:
        ring.start()
        ring.network.shape("1gbit")
        job = ring.launch(JOB, [TRAINER, "--ops", "1000000", "--count", "200001"], per_node=2,
                          of_rank={rank: ["--delay-ms", "80" if rank == SLOW else "20"] for rank in range(8)})
        wait_for_all(job, "done", 3)
        time.sleep(12)  # so that all ages and rates have something to say
        asked, words = ring.nodes[0], [ring.program("gradringctl"), "--runtime-dir", ring.nodes[0].runtime_dir]
        for name, command in PICTURES.items():
            terminal.shoot([*words, *command], options.out / f"{name}.png", prompt=" ".join(["gradringctl", *command]))
        trace = options.out / "trace.json"
        asked.ask("trace", "dump", "-o", trace, "--job", JOB)
        timeline.main(["--length", "150", str(trace), str(options.out / "trace.png")])
        trace.unlink()
        job.kill()
        job.wait(30)
        # What could go, where a link is slow.
        ring.network.slow_down(2, "200mbit")
        testbed.wait_until(lambda: all(one["state"] == "failed" for one in asked.ask("jobs")["jobs"]), 60, "nobody is in the way")
        command = ["bandwidth", "--matrix", "--svg", str(options.out / "bandwidth.svg")]
        terminal.shoot([*words, *command], options.out / "matrix.png", seconds=60,
                       prompt="gradringctl bandwidth --matrix --svg bandwidth.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
