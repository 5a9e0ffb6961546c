#!/usr/bin/env python3
"""Holds the documents to what is in the tree: links lead somewhere, a promise that is said to hold names
a test that exists, as does every test of Python that a page names, what stands there as a command can be run as
one, and every library the build asks for is explained.

usage: docs.py ROOT        exit 0: no complaint; 1: complaints on stdout
"""

import os
import re
import sys
from pathlib import Path

import tree

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
PROMISE = re.compile(r"^\|.*\*\*(holds|in part)\*\*")
TEST_NAME = re.compile(r"`((?:[\w/.-]+\.py::\w+)|(?:\w+\.\w+))`")
MENTIONED = re.compile(r"`(tests/[\w/.-]+\.py(?:::\w+)?)`")
# A line of its own that is set in, or in backticks with words behind it.
COMMAND = re.compile(r"(?:^    |`)((?:tests|tools)/[\w/.-]+)(?= [^`]|$)")
CONTRACT = "docs/failure-contract.md"


def anchors(text):
    """The names that headings can be linked by."""
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
            for heading in re.findall(r"(?m)^#+ (.*)$", text)}


def broken_links(root, path, text):
    for number, line in enumerate(text.splitlines(), 1):
        for file, anchor in LINK.findall(line):
            target = root / path.parent / file if file else root / path
            if not target.exists():
                yield f"{path}:{number}: the link to {file} leads nowhere."
            elif anchor and anchor not in anchors(target.read_text()):
                yield f"{path}:{number}: {file or path} has no heading for #{anchor}."


def gtest_cases(root):
    """Every Suite.Case of the C++ tests."""
    case = re.compile(r"^\s*(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)
    return {f"{suite}.{name}"
            for path in tree.files(root) if path.parts[0] == "tests" and path.suffix == ".cc"
            for suite, name in case.findall((root / path).read_text())}


def test_exists(root, name, cases):
    if "::" not in name:
        return name in cases
    path, function = name.split("::")
    file = root / path
    return file.is_file() and re.search(rf"^\s*def {function}\b", file.read_text(), re.MULTILINE)


def unproven_promises(root, text):
    cases = gtest_cases(root)
    for number, line in enumerate(text.splitlines(), 1):
        if not PROMISE.search(line):
            continue
        names = TEST_NAME.findall(line.split("(test", 1)[1]) if "(test" in line else []
        if not names:
            yield f"{CONTRACT}:{number}: says that it holds and names no test."
        for name in names:
            if not test_exists(root, name, cases):
                yield f"{CONTRACT}:{number}: there is no test {name}."


def missing_tests(root, path, text):
    """Tests of Python that a page names and that are not there."""
    for number, line in enumerate(text.splitlines(), 1):
        for name in MENTIONED.findall(line):
            if not (test_exists(root, name, ()) if "::" in name else (root / name).is_file()):
                yield f"{path}:{number}: there is no test {name}."


def no_commands(root, path, text):
    """What is said to be run by its name, and the system would not."""
    for number, line in enumerate(text.splitlines(), 1):
        for name in COMMAND.findall(line):
            file = root / name
            if not file.is_file():
                yield f"{path}:{number}: there is no {name} to run."
            elif not os.access(file, os.X_OK):
                yield f"{path}:{number}: {name} may not be executed; write python3 in front of it."


def unexplained_libraries(cmake, text):
    for match in re.finditer(r"(?:find_package\((\w+)|IMPORTED_TARGET (\w+))", cmake):
        name = match[1] or match[2]
        if name in ("PkgConfig", "Threads"):  # CMake's own
            continue
        word = {"ZMQ": "ZeroMQ", "libzmq": "ZeroMQ", "GTest": "GoogleTest",
                "CUDAToolkit": "CUDA Toolkit"}.get(name, name)
        if word.replace("_", "-").lower() not in text.lower():
            yield f"docs/dependencies.md: says nothing about {name}, which cmake/dependencies.cmake asks for."


def check(root):
    complaints = []
    for path in tree.files(root):
        if path.suffix == ".md":
            text = (root / path).read_text()
            complaints.extend(broken_links(root, path, text))
            complaints.extend(no_commands(root, path, text))
            if path.as_posix() != CONTRACT:  # whose promises say more, below
                complaints.extend(missing_tests(root, path, text))
    complaints.extend(unproven_promises(root, (root / CONTRACT).read_text()))
    complaints.extend(unexplained_libraries((root / "cmake/dependencies.cmake").read_text(),
                                            (root / "docs/dependencies.md").read_text()))
    return complaints


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    print("\n".join(found) or "the documents are true to the tree")
    sys.exit(1 if found else 0)
