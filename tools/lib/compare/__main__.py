"""The command: see usage below."""

import argparse
import datetime
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402  (found by the line above)
from compare import measure, report  # noqa: E402
from compare.contestant import Context, compile_library, python_of  # noqa: E402
from compare.contestants import contestants  # noqa: E402
from compare.scenarios import SCENARIOS  # noqa: E402

USAGE = """Measures allreduce of float32 by gradring and by what else there is, side by side: everybody is started, and in
each round everybody is measured at each size in turn. Every sum is checked before and after. Results, tables and
pictures go to --out."""


class Progress:
    """One line that changes on a terminal; elsewhere one a change of contestant would be a flood, so one a second."""

    def __init__(self):
        self._live = sys.stdout.isatty()
        self._said = 0.0

    def __call__(self, text, share=None, keep=False):
        now = datetime.datetime.now().timestamp()
        bar = "" if share is None else f"[{'#' * int(24 * share):<24}] {100 * share:3.0f} %  "
        if self._live:
            print(f"\r\033[K{bar}{text}", end="\n" if keep else "", flush=True)
        elif keep or now - self._said > 5:
            self._said = now
            print(f"{bar}{text}", flush=True)

    def clear(self):
        if self._live:
            print("\r\033[K", end="", flush=True)


def parse():
    parser = argparse.ArgumentParser(prog="compare", description=USAGE)
    parser.add_argument("--scenarios", default="ABCDEF", help="of A to F; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="names, with commas between; default: all")
    parser.add_argument("--quick", action="store_true", help="few sizes, peers and rounds: within 3 minutes")
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--out", type=Path, default=ROOT / "build/compare/results")
    parser.add_argument("--publish", action="store_true", help="put the results into docs/performance.md")
    parser.add_argument("--judge", action="store_true", help=argparse.SUPPRESS)  # of the rest, and nothing else
    return parser.parse_args()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # everything is taken away on the way out
    options = parse()
    reason = testbed.why_no_namespaces()
    if reason:
        sys.exit(f"compare: needs network namespaces: {reason}")
    unknown = set(options.scenarios) - set(SCENARIOS)
    if unknown:
        sys.exit(f"compare: there is no scenario {', '.join(sorted(unknown))}; known: {', '.join(SCENARIOS)}")
    names = {one.name for one in contestants()}
    wanted = [name for name in options.only.split(",") if name]
    if strangers := sorted(set(wanted) - names):
        sys.exit(f"compare: there is no {', '.join(strangers)}; known: {', '.join(sorted(names))}")
    if options.rounds < 1:
        sys.exit(f"compare: --rounds {options.rounds}: one at least")
    if options.judge:
        return
    context = Context(ROOT, ROOT / "build/compare", options.programs.resolve())
    context.folder.mkdir(parents=True, exist_ok=True)
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    os.chdir(context.folder)  # some leave files where they stand
    compile_library(context)

    chosen = [one for one in contestants() if (one.name in wanted if wanted else not options.quick or one.quick)]
    errors = {}
    for one in chosen:
        try:
            one.prepare(context)
        except (OSError, subprocess.SubprocessError) as error:
            errors[one.name] = f"cannot be had: {error}"
    table = report.contestants_table(chosen, context, errors)
    head = (f"{datetime.date.today()}, {os.cpu_count()} processors ({machine()}), load {os.getloadavg()[0]:.1f} before, "
            f"{2 if options.quick else options.rounds} rounds.\n\n{table}")
    print(head)

    say = Progress()
    files = []
    for letter in options.scenarios:
        scenario = SCENARIOS[letter]
        sizes = scenario.quick if options.quick else scenario.sizes
        if not sizes:
            continue
        able = [one for one in chosen if one.name not in errors and
                (scenario.nodes == 1 or not one.name.startswith("hand-"))]
        running = measure.run(scenario, able, sizes, 2 if options.quick else options.rounds, context, say,
                              patience=20 if options.quick else 120)
        say.clear()
        files.append(report.save(options.out, scenario, sizes, running))
        print(report.markdown(scenario, sizes, running), flush=True)
    try:
        python = python_of(context, "plots", "matplotlib")
        subprocess.run([python, report.PLOT, *files], check=True)
        print(f"tables and pictures: {options.out}")
        if options.publish:
            report.publish(ROOT / "docs/performance.md", head, files)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no pictures: {error}")


def machine():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "an unknown processor"


if __name__ == "__main__":
    main()
