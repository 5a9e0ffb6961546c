"""The command: see usage below."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from compare.contestant import Context, python_of

from . import predict, tables

ROOT = Path(__file__).resolve().parents[3]
USAGE = """Predicts how gradring scales, by its own core under virtual time with the costs of tests/scale/machines.json, and writes
tables and picture into docs/scaling.md. Nothing is measured, so it may run beside anything; it takes some minutes."""


def write(page, blocks):
    """Each block goes between the marks of its name."""
    text = page.read_text(encoding="utf-8")
    for name, block in blocks.items():
        begin, end = f"<!-- tools/scaling writes {name} from here -->\n", "<!-- to here -->\n"
        before, found, rest = text.partition(begin)
        if not found:
            sys.exit(f"scaling: {page} has no place for {name}: {begin.strip()}")
        text = before + begin + "\n" + block + "\n\n" + end + rest.partition(end)[2]
    page.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(prog="scaling", description=USAGE)
    parser.add_argument("--program", type=Path, default=ROOT / "build/bin/gradring-scale")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/scaling.md")
    parser.add_argument("--again", action="store_true", help="make the page from what was predicted the last time")
    parser.add_argument("--judge", action="store_true", help=argparse.SUPPRESS)  # of the rest, and nothing else
    options = parser.parse_args()
    raw = ROOT / "build/scaling.json"
    if not options.page.is_file():
        sys.exit(f"scaling: there is no page {options.page} to write into")
    if options.again and not raw.is_file():
        sys.exit(f"scaling: nothing was predicted yet: there is no {raw}; leave out --again")
    if options.judge:
        return
    if not options.again:
        found = predict.all_of(options.program, lambda text: print(text, flush=True))
        raw.write_text(json.dumps({**found, "published": predict.PUBLISHED}, indent=1), encoding="utf-8")
    found = json.loads(raw.read_text(encoding="utf-8"))
    described = json.loads((ROOT / "tests/scale/machines.json").read_text(encoding="utf-8"))["machines"]
    write(options.page, {
        "check": tables.check(found), "horovod": tables.horovod(found), "limits": tables.limits(found),
        "host": tables.sums(found, "nodes-8x400-host"), "gpu": tables.sums(found, "nodes-8x400-gpu"), "steps": tables.steps(found),
        "machines": tables.machines(described)})
    folder = options.page.parent / options.page.stem
    folder.mkdir(exist_ok=True)
    try:
        context = Context(ROOT, ROOT / "build/compare", options.program)
        context.folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([python_of(context, "plots", "matplotlib"), Path(__file__).parent / "plot.py", raw, folder], check=True)
        print(f"the picture, to look at: {raw.with_suffix('.png')}")
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"scaling: the tables are written, but there is no picture: {error}")


if __name__ == "__main__":
    main()
