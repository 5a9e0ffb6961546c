#!/usr/bin/env python3
"""Manners of files that no compiler and no formatter looks after.

usage: tidy.py ROOT        exit 0: no complaint; 1: complaints on stdout
"""

import re
import sys
from pathlib import Path

import tree

CODE = (".h", ".hpp", ".cc", ".cpp", ".c", ".cu", ".cuh", ".py", ".proto", ".sh", ".cmake")
HEADERS = (".h", ".hpp", ".cuh")

# A long file is a symptom, not a crime: it usually has two jobs. One that has a single job may be long,
# and says here why it is.
LINES_MAX = 400
COLUMNS_MAX = 140  # of Python, which no formatter looks after
PROSE_MAX = 120  # columns of documents, but for tables, code, and links that are longer
LONG_FILES = {
    "client/include/gradring/gradring.h": "the C interface, which programs include as one file",
    "client/include/gradring/gradring.hpp": "the C++ interface, which programs include as one file",
    "tests/daemon/live_client_test.cc": "everything a hostile client can do to a live daemon, one after another",
}

# Data that is kept as it came, and the text of the licence.
AS_IT_CAME = re.compile(r"^LICENSE$|\.(csv|data|gz|svg|png)$|/corpus/|^(client/examples|tests/.*)/data/")

# What belongs to somebody's machine and not to the project.
FORBIDDEN = [
    (re.compile(r"(?<![\w$}.-])/(home|Users)/\w"), "a path in somebody's home folder"),
    (re.compile(r"(?<![\w$}.-])/(root|work|workspace)\b(?!:)"), "a path of somebody's machine"),
    (re.compile(r"https?://[\w.-]*(pypi|pythonhosted|debian\.org|ubuntu\.com/ubuntu)"),
     "the address of a package registry: name packages, and let the system know where they are"),
    (re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "a note of unfinished work: finish it, or open an issue"),
]
# Only monotonic time may enter a verdict, and nothing else in these folders needs the time.
WALL_CLOCK = re.compile(r"\b(system_clock|high_resolution_clock|CLOCK_REALTIME|gettimeofday)\b"
                        r"|\btime\((0|NULL|nullptr)\)")
MONOTONIC_FOLDERS = re.compile(r"^(proto|daemon|transport|client/src)/")

# Who may look at it nevertheless, to tell people the time.
MAY_READ_WALL_CLOCK = {
    "daemon/control/queries/settings_report.cc": "gradringctl doctor tells whose clock is wrong",
    "daemon/flight/file.cc": "once, at the start: the offset that the flight recorder's reader shows",
    "daemon/notice.cc": "when something happened, for people; nothing is decided by it",
}

# The checks themselves must be able to say what they look for, and Debian's format for copyrights begins
# with its address.
MAY_NAME_IT = re.compile(r"^tests/house/tidy(_test)?\.py$|^tools/packaging/debian/copyright$")


def wide_prose(lines):
    """Numbers of lines that could have been broken."""
    code = False
    for number, line in enumerate(lines, 1):
        code ^= line.lstrip().startswith("```")
        could_be_broken = " " in line.strip()[:PROSE_MAX].removeprefix("- ")
        if len(line) > PROSE_MAX and could_be_broken and not code and not line.lstrip().startswith("|") and line[:4] != "    ":
            yield number


def complaints_about(path, text):
    name = path.as_posix()
    if AS_IT_CAME.search(name):
        return
    lines = text.splitlines()
    if text and not text.endswith("\n"):
        yield f"{name}: ends without a newline."
    if path.suffix in HEADERS and "#pragma once" not in text and not re.search(
            r"#ifndef (\w+)\n#define \1\n", text) and "-inl." not in name:
        yield f"{name}: a header without `#pragma once`."
    if path.suffix in CODE and len(lines) > LINES_MAX and name not in LONG_FILES:
        yield (f"{name}: {len(lines)} lines. Does it have one job? If so, list it with the reason in "
               "LONG_FILES of tests/house/tidy.py; else let the second job have its own file.")
    for number in wide_prose(lines) if path.suffix == ".md" else []:
        yield f"{name}:{number}: {len(lines[number - 1])} columns; {PROSE_MAX} are enough."
    for number, line in enumerate(lines, 1):
        if path.suffix == ".py" and len(line) > COLUMNS_MAX:
            yield f"{name}:{number}: {len(line)} columns; {COLUMNS_MAX} are enough."
        if MONOTONIC_FOLDERS.match(name) and name not in MAY_READ_WALL_CLOCK and WALL_CLOCK.search(line):
            yield f"{name}:{number}: a clock that can be set: use the monotonic one (std::chrono::steady_clock)."
        if line != line.rstrip():
            yield f"{name}:{number}: blanks at the end of the line."
        for pattern, what in [] if MAY_NAME_IT.match(name) else FORBIDDEN:
            if pattern.search(line):
                yield f"{name}:{number}: {what}: {line.strip()[:80]}"


def check(root, long_files=None):
    found = []
    for path in tree.files(root):
        text = tree.text_of(root / path)
        if text is not None:
            found.extend(complaints_about(path, text))
    for name in LONG_FILES if long_files is None else long_files:
        path = root / name
        if not path.is_file() or len((tree.text_of(path) or "").splitlines()) <= LINES_MAX:
            found.append(f"{name}: is not long (any more); take it out of LONG_FILES.")
    return found


if __name__ == "__main__":
    complaints = check(Path(sys.argv[1]))
    print("\n".join(complaints) or "every file is in order")
    sys.exit(1 if complaints else 0)
