#!/usr/bin/env python3
"""Runs Horovod's own tests of its PyTorch names against gradring's, on two daemons with two ranks each.

usage: run_horovod.py HOROVOD [--programs DIR] [--only WORD] [--table FILE] [FILE...]

HOROVOD: a clone of Horovod, or a folder with its test/. FILEs: of test/parallel. Runs with the interpreter that has
gradring, torch and pytest, and what Horovod's tests import: cloudpickle, mock, packaging.
exit 0: whatever applies passes, but for what EXPECTED names; 1: not so.
"""

import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools/lib"))

import cluster as testbed  # noqa: E402  (found by the line above)
from expected import EXPECTED  # noqa: E402

FILES = ["test_torch.py", "test_adasum_pytorch.py", "test_common.py", "test_process_sets_static.py",
         "test_process_sets_multi_comm.py"]
# A rank that fails must not leave the others waiting.
SETTINGS = {"op-deadline": "20s", "form-deadline": "30s"}
SECONDS_OF_A_FILE = 1500


def run_file(ring, file, only, number):
    """{test: (outcome, why)} of all ranks together."""
    path = os.pathsep.join([str(ROOT / "client/python/shim/horovod"), os.environ.get("PYTHONPATH", "")])
    results = [ring.folder / f"results-{number}-{rank}" for rank in range(4)]
    words = ["-k", only] if only else []
    command = ["/usr/bin/env", f"PYTHONPATH={path}", "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1",
               sys.executable, Path(__file__).with_name("one_rank.py"), file]
    job = ring.launch(f"conformance-{number}", command, per_node=2,
                      of_rank={rank: [one, *words] for rank, one in enumerate(results)})
    try:
        statuses = job.wait(SECONDS_OF_A_FILE)
    finally:
        job.kill()
    # 5: pytest found nothing to run
    if any(status not in (0, 1, 5) for status in statuses) or not all(one.exists() for one in results):
        raise SystemExit("\n".join(f"{one.name}: {one.status}: {one.says()[-2000:]}{one.complains()[-2000:]}"
                                   for one in job))
    return together([[json.loads(line) for line in one.read_text().splitlines()] for one in results])


def together(ranks):
    """A test passed if it did on one rank at least and failed on none."""
    told = {}
    for rank, lines in enumerate(ranks):
        for line in lines:
            told.setdefault(line["test"], []).append((line["outcome"], rank, line["why"]))
    found = {}
    for test, outcomes in told.items():
        for wanted in ("failed", "passed", "skipped"):
            match = [(rank, why) for outcome, rank, why in outcomes if outcome == wanted]
            if match:
                found[test] = (wanted, f"rank {match[0][0]}: {match[0][1]}" if wanted == "failed" else match[0][1])
                break
    return found


def judged(file, test, outcome, why):
    """What stands in the table: passed, not applicable, differs, failed."""
    verdict, reason = EXPECTED.get(f"{file}::{test}", (None, None))
    if outcome == "passed":
        return ("passed", "") if verdict is None else ("failed", f"passes, and is expected not to: {reason}")
    if outcome == "skipped":
        return "not applicable", reason or why.removeprefix("Skipped: ")
    return (verdict, reason) if verdict else ("failed", why)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("horovod", type=Path)
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--programs", type=Path, default=ROOT / "build/bin")
    parser.add_argument("--only", help="as pytest's -k")
    parser.add_argument("--table", type=Path, help="where to write all results, as Markdown")
    words = parser.parse_args()
    rows = []
    network, _ = testbed.best_network()
    with testbed.Cluster(words.programs.resolve(), 2, network=network, settings=SETTINGS) as ring:
        ring.start()
        for number, file in enumerate(words.files):
            path = words.horovod.resolve() / "test/parallel" / file
            for test, (outcome, why) in run_file(ring, str(path), words.only, number).items():
                rows.append((file, test, *judged(file, test, outcome, why)))
    lines = ["| file | test | result | why |", "| --- | --- | --- | --- |"]
    lines += [f"| {file} | {test} | {result} | {' '.join(why.split())[:300].replace('|', '/')} |"
              for file, test, result, why in rows]
    if words.table:
        words.table.write_text("\n".join(lines) + "\n")
    print("\n".join(line for line, row in zip(lines[2:], rows, strict=True) if row[2] != "passed"))
    totals = Counter(row[2] for row in rows)
    print(", ".join(f"{count} {result}" for result, count in totals.most_common()))
    return 1 if totals["failed"] or not totals["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
