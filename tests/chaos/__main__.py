"""The command line of tools/chaos."""

import argparse
import json
import sys
from pathlib import Path

from cluster import why_no_namespaces

from .run import Run

ROOT = Path(__file__).resolve().parents[2]


def options():
    parser = argparse.ArgumentParser(prog="tools/chaos", description=(
        "Churn and faults on 4 daemons in network namespaces and 8 trainers of an elastic job: SIGKILLs, SIGSTOPs, "
        "killed daemons, cut links. Compares what all trainers were told, to the bit. Needs root. The last line of "
        "the output is a verdict; exit status 0 only if all held."))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same schedule of faults")
    parser.add_argument("--kills", action="store_true", help="mostly SIGKILLs, as many as the machine bears")
    parser.add_argument("--elements", type=int, default=65536, help="float32 of the largest op")
    parser.add_argument("--programs", default=str(ROOT / "build/bin"), help="folder of the built programs")
    parser.add_argument("--keep", action="store_true", help="write a support bundle even if all held")
    return parser.parse_args()


def main():
    said = options()
    reason = why_no_namespaces()
    if reason:
        print(f"tools/chaos: {reason}", file=sys.stderr)
        return 2
    figures = Run(said.programs, said.seed, "kills" if said.kills else "balanced", said.minutes, said.elements,
                  said.keep).go()
    print(json.dumps({k: v for k, v in figures.items() if k not in ("times", "crowded")}, indent=1))
    for complaint in figures["complaints"][:10]:
        print(complaint)
    return 1 if figures["complaints"] else 0


if __name__ == "__main__":
    sys.exit(main())
