"""The command line of tools/chaos."""

import argparse
import signal
import sys
from pathlib import Path

from cluster import why_no_namespaces

from .publish import publish
from .run import Run
from .stopwatch import BOUNDS, SLACK, percentile
from .totals import add, load, save

MEASURED_LEAST = 100

ROOT = Path(__file__).resolve().parents[2]


def options():
    parser = argparse.ArgumentParser(prog="tools/chaos", description=(
        "Churn and faults on 4 daemons in network namespaces and 8 trainers of an elastic job: SIGKILLs, SIGSTOPs, "
        "killed daemons, cut links. Compares what all trainers were told, to the bit. Needs root. The last line of "
        "the output is a verdict; exit status 0 only if all held."))
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same schedule of faults")
    parser.add_argument("--kills", action="store_true", help="mostly SIGKILLs, as many as the machine bears")
    parser.add_argument("--restarts", action="store_true", help="kill daemons that have a keeper, and trainers: nobody "
                        "else may end")
    parser.add_argument("--calm", action="store_true", help="one fault at a time, the next when all ranks are back: what "
                        "the published times to verdict are from")
    parser.add_argument("--edges", action="store_true", help="ways between nodes are cut and back about when the daemons "
                        "decide: of a node, between two, between two halves")
    parser.add_argument("--elements", type=int, default=65536, help="float32 of the largest op")
    parser.add_argument("--programs", default=str(ROOT / "build/bin"), help="folder of the built programs")
    parser.add_argument("--totals", type=Path, default=ROOT / "build/chaos-totals.json",
                        help="what all runs came to; each adds to it")
    parser.add_argument("--publish", action="store_true",
                        help="no run: write what all runs came to into docs/reliability.md")
    parser.add_argument("--keep", action="store_true", help="write a support bundle even if all held")
    said = parser.parse_args()
    if not 0 < said.minutes < float("inf"):
        parser.error(f"--minutes {said.minutes:g}: a run takes some, and ends")
    if said.elements < 1:
        parser.error(f"--elements {said.elements}: one at least")
    return said


def show(figures):
    """A run's figures, for people."""
    faults = sum(figures["faults"].values())
    print(f"{faults} faults in {figures['seconds']:.0f} s, {figures['during_a_view_change']} of them during a view "
          f"change, {figures['sigkills']} SIGKILLs")
    print("  " + ", ".join(f"{kind} {count}" for kind, count in sorted(figures["faults"].items())))
    print(f"{figures['verdicts']} verdicts on {figures['ops']} ops, {figures['shrunk']} of them shrunk; "
          f"{figures['excused']} differed at a node that was left out, as the contract allows")
    print(f"some op was under way for {figures['under_way']:.1%} of the time; in {figures['ended_tenths']:.1%} of all "
          f"tenths of a second one ended; none did for {figures['standstill']:.1f} s at most while nothing was stopped or "
          "cut")
    for title, counts in (("trainers that ended by themselves", figures["ends"]),
                          ("trainers that could not come in", figures["refusals"])):
        for why, count in sorted(counts.items(), key=lambda one: -one[1])[:8]:
            print(f"  {title}: {count} x {why[:160]}")
    for line in figures["growth"]:
        print("  " + line)
    p50, p99 = figures["wakeup"]
    print(f"time to verdict (load {figures['load']}, a control process is woken {p50 * 1e3:.2f} ms late at p50, "
          f"{p99 * 1e3:.1f} ms at p99):")
    for kind in BOUNDS:
        for title, times in (("", figures["times"].get(kind)), (" among others", figures["crowded"].get(kind))):
            if times:
                print(f"  {kind + title:32} {len(times):5}  p50 {percentile(times, .5):7.3f} s  "
                      f"p99 {percentile(times, .99):7.3f} s  longest {max(times):7.3f} s")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # namespaces are taken away on the way out
    said = options()
    kept, published = said.totals, ROOT / "docs/reliability/totals.json"
    totals = load(kept if kept.exists() else published)
    if said.publish:
        publish(ROOT, totals)
        return 0
    reason = why_no_namespaces()
    if reason:
        print(f"tools/chaos: {reason}", file=sys.stderr)
        return 2
    mode = next((one for one in ("kills", "restarts", "calm", "edges") if getattr(said, one)), "balanced")
    figures = Run(said.programs, said.seed, mode, said.minutes, said.elements, said.keep).go()
    show(figures)
    totals = load(kept if kept.exists() else published)  # another run may have ended meanwhile
    save(kept, add(totals, figures))
    print(f"all runs so far: {len(totals['runs'])} runs, {totals['sigkills']} SIGKILLs, {totals['hangs']} hangs, "
          f"{totals['divergences']} divergences")
    complaints = figures["complaints"] + too_slow(figures)
    for complaint in complaints[:10]:
        print(complaint)
    if "bundle" in figures:
        print(f"support bundle: {figures['bundle']}")
    print(f"tools/chaos: seed {said.seed}: " + ("FAILED" if complaints else "all held: no hang, no divergence, no "
                                                "wrong bit"))
    return 1 if complaints else 0


def too_slow(figures):
    """Ten times the contract's bound is never reached, however busy the machine. Of few faults there is no p99."""
    return [f"{kind}: p99 of the time to verdict is {percentile(times, .99):.2f} s, more than {SLACK} times {bound} s"
            for kind, bound in BOUNDS.items()
            if len(times := figures["times"].get(kind, [])) >= MEASURED_LEAST and percentile(times, .99) > SLACK * bound]


if __name__ == "__main__":
    sys.exit(main())
