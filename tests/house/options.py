#!/usr/bin/env python3
"""Holds docs/configure.md and the sample configuration to what gradringd itself says in --help, and
docs/migrate-horovod.md to the flags of horovodrun that gradring-run takes.

usage: options.py GRADRINGD GRADRING-RUN ROOT        exit 0: no complaint; 1: complaints on stdout
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/docs"))

import option_table  # noqa: E402  (found by the line above)

PAGE = "docs/configure.md"
SAMPLE = "systemd/gradringd.conf"
FLAGS_PAGE = "docs/migrate-horovod.md"


def options_of_sample(text):
    return dict(re.findall(r"(?m)^#([a-z-]+) = (.*)$", text))


def complaints_about_sample(options, sample):
    for name in sorted(options.keys() - sample.keys()):
        if options[name][1].startswith("the same as "):
            continue  # its other name is to be written
        yield f"{SAMPLE}: does not have {name}, which gradringd --help lists."
    for name in sorted(sample.keys() - options.keys()):
        yield f"{SAMPLE}: has {name}, which gradringd --help does not list."
    for name in sorted(options.keys() & sample.keys()):
        default, _ = options[name]
        # A default in words, as "half of the memory", is no value that the sample could show.
        if default.startswith("`") and default.strip("`") != sample[name]:
            yield f"{SAMPLE}: {name} is {sample[name]!r}, the daemon's default is {default.strip('`')!r}."


def compare(options, page, sample):
    if not options:
        yield "gradringd --help shows no options."
    for one in option_table.differences(page, options):
        yield f"{PAGE}: {one}"
    yield from complaints_about_sample(options, options_of_sample(sample))


def complaints_about_flags(text, page):
    """`text`: of gradring-run --help. A row of the page may have `--autotune-...`, or say of its flags "and with `--no-`"."""
    rows = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `-")]

    def told(flag, with_no=False):
        for row in rows:
            names = re.findall(r"--[a-z-]+(?:\.\.\.)?", row)
            if (not with_no or "`--no-`" in row) and any(
                    flag == name or name.endswith("...") and flag.startswith(name[:-3]) for name in names):
                return True
        return False
    for flag in re.findall(r"(?m)^  (?:-\w \[ )?(--[a-z-]+)", text.split("\nAs horovodrun has them:\n", 1)[1].split("\n\n", 1)[0]):
        if not told(flag) and not (flag.startswith("--no-") and told("--" + flag[5:], with_no=True)):
            yield f"{FLAGS_PAGE}: does not have {flag}, which gradring-run --help lists."


if __name__ == "__main__":
    binary, runner, root = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    shown = option_table.options_of_help(option_table.help_of(binary))
    complaints = list(compare(shown, (root / PAGE).read_text(), (root / SAMPLE).read_text()))
    complaints += complaints_about_flags(option_table.help_of(runner), (root / FLAGS_PAGE).read_text())
    if any(one.startswith(PAGE) for one in complaints):
        complaints.append(f"To mend {PAGE}: tools/docs/option_table.py {binary} {PAGE}")
    print("\n".join(complaints) or f"{len(shown)} options, documented as they are")
    sys.exit(1 if complaints else 0)
