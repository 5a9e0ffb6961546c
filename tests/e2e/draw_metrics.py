"""Makes docs/metrics.png: a ring with two jobs, a real Prometheus, and tools/grafana/render.py.

usage: draw_metrics.py [--programs DIR] [--python PYTHON] OUT     PYTHON has matplotlib; needs Prometheus

One of the first job's ranks is stopped for some seconds, and the second job comes later: something is to be seen.
"""

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

from monitor import ROOT, Monitored, testbed, why_no_prometheus

TRAINER = "gradring-e2e-trainer"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("out")
    options = parser.parse_args()
    if why_no_prometheus():
        sys.exit(why_no_prometheus())
    with testbed.Cluster(options.programs, 2) as ring:
        monitored = Monitored(ring)
        train = ring.launch("resnet", [TRAINER, "--ops", "1000000", "--delay-ms", "8", "--count", "1000001", "--keep-going"],
                            per_node=2)
        time.sleep(25)
        train[3].signal(signal.SIGSTOP)
        time.sleep(6)
        train[3].signal(signal.SIGCONT)
        time.sleep(4)
        ring.launch("bert", [TRAINER, "--ops", "1000000", "--delay-ms", "3", "--count", "4001", "--keep-going", "--at", "900",
                             "--act", "nan"], per_node=1)
        time.sleep(25)
        return subprocess.run([options.python, ROOT / "tools/grafana/render.py", monitored.url, options.out, "--seconds", "60"],
                              check=False, timeout=120).returncode


if __name__ == "__main__":
    sys.exit(main())
