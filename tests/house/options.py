#!/usr/bin/env python3
"""Holds docs/configure.md and the sample configuration to what gradringd itself says in --help.

usage: options.py GRADRINGD ROOT        exit 0: no complaint; 1: complaints on stdout
"""

import re
import subprocess
import sys
from pathlib import Path

TABLE = "docs/configure.md"
SAMPLE = "systemd/gradringd.conf"
COMMAND_LINE_ONLY = {"config", "check-config", "keep", "help", "version"}


def options_of_help(text):
    """Option to default ('' if the help shows none)."""
    options, current = {}, None
    for line in text.splitlines():
        match = re.match(r"\s{2,}(?:-\w \[ )?--([a-z][a-z-]*)", line)
        if match:
            current = match[1]
            options[current] = line
        elif current and re.match(r"\s{8,}\S", line):
            options[current] += " " + line.strip()
        else:
            current = None
    return {name: (re.search(r"\[([^\[\]=]+)\]\s*$", said) or [None, ""])[1]
            for name, said in options.items() if name not in COMMAND_LINE_ONLY}


def options_of_table(text):
    section = text.split("## Options", 1)[1].split("\n## ", 1)[0]
    return {name: default.strip("` ")
            for name, default in re.findall(r"(?m)^\| `([a-z-]+)` \|([^|]*)\|", section)}


def options_of_sample(text):
    return dict(re.findall(r"(?m)^#([a-z-]+) = (.*)$", text))


def compare(said, table, sample):
    for where, found in ((TABLE, table), (SAMPLE, sample)):
        for name in sorted(said.keys() - found.keys()):
            yield f"{where}: does not have {name}, which gradringd --help lists."
        for name in sorted(found.keys() - said.keys()):
            yield f"{where}: has {name}, which gradringd --help does not list."
        for name in sorted(said.keys() & found.keys()):
            if said[name] and said[name] != found[name]:
                yield f"{where}: {name} is {found[name]!r}, the daemon's default is {said[name]!r}."


if __name__ == "__main__":
    binary, root = sys.argv[1], Path(sys.argv[2])
    shown = options_of_help(subprocess.run([binary, "--help"], check=True, capture_output=True,
                                           text=True, timeout=30).stdout)
    complaints = ["gradringd --help shows no options."] if not shown else list(compare(
        shown, options_of_table((root / TABLE).read_text()),
        options_of_sample((root / SAMPLE).read_text())))
    print("\n".join(complaints) or f"{len(shown)} options, documented as they are")
    sys.exit(1 if complaints else 0)
