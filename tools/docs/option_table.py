#!/usr/bin/env python3
"""Keeps the table of options in docs/configure.md.

usage: option_table.py [--check] GRADRINGD PAGE

The columns option, default and meaning are what `gradringd --help` says. The last column is written by hand and
kept, option by option. --check changes nothing: exit 1, with a line for each row that is not as it should be.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

COMMAND_LINE_ONLY = {"config", "check-config", "keep", "help", "version"}
HEAD = "| option | default | meaning | more |\n| --- | --- | --- | --- |\n"
# A bar that a backslash precedes belongs to the text of a cell.
ROW = re.compile(r"^\| `(?P<name>[a-z-]+)`.* \|(?P<more>(?:[^|\\]|\\.)*)\|$")


def options_of_help(text):
    """Option to (default, meaning); the default is '' where there is none."""
    said, current = {}, None
    for line in text.splitlines():
        match = re.match(r"\s{2,}--([a-z][a-z-]*)(?: \S+)?(?:\s{2,}(\S.*))?$", line)
        if match:
            current = match[1]
            said[current] = [match[2] or ""]
        elif current and re.match(r"\s{8,}\S", line):
            said[current].append(line)
        else:
            current = None
    return {name: apart(" ".join(" ".join(lines).split())) for name, lines in said.items() if name not in COMMAND_LINE_ONLY}


def apart(words):
    """Of `what it is [default]`, or `what it is; default: in words`, the default and what it is."""
    match = re.search(r"\s*\[([^\[\]=]+)\]$", words)
    if match:
        return f"`{match[1]}`", words[:match.start()]
    meaning, _, default = words.partition("; default: ")
    return default, meaning


def cell(text):
    return f" {text.replace('|', chr(92) + '|')} " if text else " "


def row_of(name, default, meaning, more):
    return f"| `{name}` |{cell(default)}|{cell(meaning)}|{more or ' '}|"


def bounds(text):
    """Where the table of the section Options begins and ends."""
    begin = text.index("| option | default |", text.index("\n## Options\n"))
    end = re.compile(r"\n(?!\|)").search(text, begin).start() + 1
    return begin, end


def written_by_hand(table):
    """The last column, by option."""
    return {match["name"]: match["more"] for match in map(ROW.match, table.splitlines()) if match}


def renewed(text, options):
    """The page with the table as it should be."""
    begin, end = bounds(text)
    more = written_by_hand(text[begin:end])
    rows = [row_of(name, *said, more.get(name)) for name, said in options.items()]
    return text[:begin] + HEAD + "\n".join(rows) + "\n" + text[end:]


def differences(text, options):
    """Sentences about the rows of the page that are not what the program says."""
    there, wanted = ({line.split("`")[1]: line for line in page[slice(*bounds(page))].splitlines() if line.startswith("| `")}
                     for page in (text, renewed(text, options)))
    for name in sorted(there.keys() | wanted.keys()):
        if name not in wanted:
            yield f"has {name}, which gradringd --help does not list."
        elif name not in there:
            yield f"does not have {name}, which gradringd --help lists."
        elif there[name] != wanted[name]:
            yield f"says of {name} {there[name]!r}; it should be {wanted[name]!r}."


def help_of(program):
    return subprocess.run([program, "--help"], check=True, capture_output=True, text=True, timeout=30).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say what is not as it should be")
    parser.add_argument("gradringd")
    parser.add_argument("page", type=Path)
    chosen = parser.parse_args()
    options, text = options_of_help(help_of(chosen.gradringd)), chosen.page.read_text()
    if not options:
        sys.exit(f"{chosen.gradringd} --help shows no options")
    if not chosen.check:
        chosen.page.write_text(renewed(text, options))
        return 0
    found = [f"{chosen.page}: {one}" for one in differences(text, options)]
    if found:
        found.append(f"To mend it: tools/docs/option_table.py {chosen.gradringd} {chosen.page}")
    print("\n".join(found) or f"{len(options)} options, documented as they are")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
