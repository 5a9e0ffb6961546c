#!/usr/bin/env python3
"""Holds docs/configure.md and the sample configuration to what gradringd itself says in --help.

usage: options.py GRADRINGD ROOT        exit 0: no complaint; 1: complaints on stdout
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/docs"))

import option_table  # noqa: E402  (found by the line above)

PAGE = "docs/configure.md"
SAMPLE = "systemd/gradringd.conf"


def options_of_sample(text):
    return dict(re.findall(r"(?m)^#([a-z-]+) = (.*)$", text))


def complaints_about_sample(options, sample):
    for name in sorted(options.keys() - sample.keys()):
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


if __name__ == "__main__":
    binary, root = sys.argv[1], Path(sys.argv[2])
    shown = option_table.options_of_help(option_table.help_of(binary))
    complaints = list(compare(shown, (root / PAGE).read_text(), (root / SAMPLE).read_text()))
    if any(one.startswith(PAGE) for one in complaints):
        complaints.append(f"To mend {PAGE}: tools/docs/option_table.py {binary} {PAGE}")
    print("\n".join(complaints) or f"{len(shown)} options, documented as they are")
    sys.exit(1 if complaints else 0)
