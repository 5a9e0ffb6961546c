#!/usr/bin/env python3
"""Holds the binary interface of libgradring to what was released: functions, members and values may be added, at the end
of structures that begin with their size; none may go, move or change.

usage: abi.py ROOT             exit 0: no complaint; 1: complaints on stdout; 77: cannot be checked here
       abi.py ROOT --update    takes the interface of now for the released one

Read from the header, through the compiler's debugging information; that the library exports what the header declares is
tests/client/exported_symbols.sh's matter.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

RELEASED = "tests/house/abi.txt"
HEADER = "client/include/gradring/gradring.h"


def description(header):
    """abidw's, of a library with a pointer to each function that the header declares."""
    text = re.sub(r"(?s)/\*.*?\*/", "", header.read_text())
    names = sorted(set(re.findall(r"\b(gradring_[a-z_]+)\(", text)))
    stub = f'#include "{header}"\n' + "".join(f"__typeof__(&{name}) pointer_to_{name} = 0;\n" for name in names)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "stub.c", Path(folder) / "stub.so"
        source.write_text(stub)
        subprocess.run(["cc", "-g", "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=60)
        out = subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", str(library)], check=True,
                             capture_output=True, text=True, timeout=60).stdout
    return ElementTree.fromstring(out)


class Types:
    """What abidw's numbers of types stand for, in words."""

    def __init__(self, tree):
        self._by_id = {one.get("id"): one for one in tree.iter() if one.get("id")}

    def of(self, identity):
        one = self._by_id[identity]
        below = one.get("type-id")
        if one.tag == "pointer-type-def":
            return f"{self.of(below)}*"
        if one.tag == "qualified-type-def":
            return f"const {self.of(below)}" if one.get("const") == "yes" else self.of(below)
        if one.tag == "array-type-def":
            return f"{self.of(below)}[{one.find('subrange').get('length')}]"
        if one.tag == "typedef-decl" and not one.get("name").startswith("gradring_"):
            return self.of(below)  # size_t and its kin are what they are on this architecture
        if one.tag == "function-type":
            return self.function(one)
        return one.get("name")

    def function(self, one):
        given = ", ".join(self.of(parameter.get("type-id")) for parameter in one.findall("parameter"))
        return f"{self.of(one.find('return').get('type-id'))} ({given})"


def interface(header):
    """A line "what: how it is" for each function, member and value."""
    tree = description(header)
    types, found = Types(tree), set()
    for one in tree.iter("var-decl"):
        name = one.get("name")
        if name.startswith("pointer_to_"):
            found.add(f"{name.removeprefix('pointer_to_')}: {types.of(one.get('type-id'))[:-1]}")
    for one in tree.iter("enum-decl"):
        found |= {f"{one.get('name')} {value.get('name')}: {value.get('value')}" for value in one.findall("enumerator")}
    for one in tree.iter("class-decl"):
        for member in one.findall("data-member"):
            inside = member.find("var-decl")
            at = int(member.get("layout-offset-in-bits")) // 8
            found.add(f"{one.get('name')}.{inside.get('name')}: {types.of(inside.get('type-id'))} at {at}")
    return sorted(found)


def compare(released, now):
    ours = dict(line.split(": ", 1) for line in now)
    for line in released:
        what, how = line.split(": ", 1)
        if what not in ours:
            yield f"{what} ({how}) is gone: programs that were linked with it break."
        elif ours[what] != how:
            yield f"{what} was {how} and is {ours[what]}: programs that were compiled with it break."


if __name__ == "__main__":
    if shutil.which("abidw") is None:
        print("SKIPPED: abidw is not installed (package abigail-tools), so the binary interface was not checked")
        sys.exit(77)
    root = Path(sys.argv[1]).resolve()
    current = interface(root / HEADER)
    if sys.argv[2:] == ["--update"]:
        (root / RELEASED).write_text("\n".join(current) + "\n")
        sys.exit()
    complaints = list(compare((root / RELEASED).read_text().splitlines(), current))
    print("\n".join(complaints) or f"{len(current)} functions, members and values, all as they were released")
    sys.exit(1 if complaints else 0)
