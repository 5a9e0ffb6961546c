#!/usr/bin/env python3
"""Names that two files of one library have each for itself, of which the compiler hears only where it compiles both
together (CMAKE_UNITY_BUILD): which files meet changes with every file that is added.

usage: names.py ROOT        exit 0: no complaint; 1: complaints on stdout
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

import tree

LISTS = re.compile(r"\b(?:add_library|add_executable|nanobind_add_module|gradring_add_\w+|set)\s*\(\s*([\w-]+)([^)]*)\)")
ALONE = re.compile(r"\bset_source_files_properties\s*\(([^)]*)SKIP_UNITY_BUILD_INCLUSION ON"
                   r"|\bset_target_properties\s*\(([^)]*)UNITY_BUILD OFF")
SOURCE = re.compile(r"(?<![\w./}-])[\w./-]+\.cc\b")

RAW = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)
# What begins at the left edge goes on until the next line that does, as clang-format leaves it.
EDGE = re.compile(r"^(?:(?:inline )?namespace ?([\w:]*) ?\{(?!.*\})|\}  // (?:inline )?namespace|"
                  r"(?!template|using namespace|static_assert|extern)[\w\[:].*(?:\n[ \t]+.*)*)", re.MULTILINE)
TYPE = re.compile(r"(?:struct|class|union|enum(?: class)?) (?:alignas\([^)]*\) )?(\w+)(?: final)?(?: :[^;{]*)? ?\{")
ALIAS = re.compile(r"(?:using|namespace) (\w+) = ([^;]*);")
NAMED = re.compile(r"[^(={;]*?(operator ?(?:\(\)|[^\s\w(]+)|[\w:~]+)\s*(?:\[[^\]]*\]\s*)*(?=([(={;]))")
OWN = re.compile(r"(?:(?:inline|\[\[[\w:]+\]\]) )*(?:static|constexpr|const|constinit) ")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
NO_DEFINITION = re.compile(r"(?:using|struct|class|enum|union|friend) [^({]*;|[A-Z][A-Z0-9_]+\(")


def programs(root):
    """Of each library or program: its sources that may be compiled together."""
    for path in tree.files(root):
        if path.name != "CMakeLists.txt":
            continue
        text = re.sub(r"#.*|\$<[^>]*>|\$\{CMAKE_CURRENT_SOURCE_DIR\}/", "", tree.text_of(root / path))
        alone = {word for match in ALONE.finditer(text) for word in (match[1] or match[2]).split()}
        for target, words in LISTS.findall(text):
            if target not in alone:
                yield [path.parent / source for source in SOURCE.findall(words) if source not in alone]


def parameters(text):
    """The types of what is between the parentheses that text begins with, as they are written."""
    depth, one, all_of_them = 0, "", []
    for char in text:
        depth += {"(": 1, "<": 1, "{": 1, ")": -1, ">": -1, "}": -1}.get(char, 0)
        if depth == 0 or (depth == 1 and char == ","):
            all_of_them.append(one)
            one = ""
            if depth == 0:
                break
        elif depth > 1 or char != "(":
            one += char
    types = (re.sub(r"=.*", "", parameter, flags=re.DOTALL).strip() for parameter in all_of_them)
    return tuple(re.sub(r"\s+|(?<=[\s&*])\w+$", "", type_and_name) for type_and_name in types)


def names(text):
    """Of each name that is defined outside of types and functions: itself, what it is, whether it is the file's own, and its line."""
    text = RAW.sub(lambda raw: '"' + "\n" * raw[0].count("\n") + '"', text)
    spaces = []
    for match in EDGE.finditer(text):
        words = match[0]
        if words.startswith("}"):
            spaces.pop()
            continue
        if match[1] is not None:
            spaces.append(match[1])
            continue
        own, space = "" in spaces, "::".join(filter(None, spaces))
        if found := TYPE.match(words):
            name, what = found[1], "a type"
        elif found := ALIAS.match(words):
            name, what = found[1], f"= {found[2]}"
        elif NO_DEFINITION.match(words) or not (found := NAMED.match(words)) or "::" in found[1]:
            continue
        else:
            function = found[2] == "("
            name, what = found[1], parameters(words[found.end():]) if function else "a value"
            own = own or words.startswith("static ") or (not function and bool(OWN.match(words)))
        yield f"{space}::{name}", what, own, text.count("\n", 0, match.start()) + 1


def collide(one, other):
    """Functions of other parameters can have one name, and so can aliases of one type."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return one == other
    return one != other or not one.startswith("=")


def add_included(path, texts, headers):
    """What a file includes of the project, and what that does."""
    for header in map(Path, INCLUDE.findall(texts.get(path, ""))):
        if header not in headers:
            headers[header] = None
            add_included(header, texts, headers)


def check(root):
    texts = {path: tree.text_of(root / path) or "" for path in tree.files(root) if path.suffix in (".cc", ".h")}
    defined = {path: list(names(text)) for path, text in texts.items()}
    complaints = set()
    for sources in programs(root):
        headers = {}  # in the order in which they came
        for path in sources:
            add_included(path, texts, headers)
        seen = defaultdict(list)
        for path in [*headers, *sources]:
            for name, what, own, line in defined.get(path, []):
                for there, what_there, own_there, line_there in seen[name]:
                    if there != path and path.suffix == ".cc" and (own or own_there) and collide(what, what_there):
                        complaints.add(f"{path}:{line}: {name.rpartition('::')[2]} is in {there}:{line_there}, too, "
                                       "and both may come to be compiled together: find it a name of its own.")
                seen[name].append((path, what, own and path.suffix == ".cc", line))
    return sorted(complaints)


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    print("\n".join(found) or "every name is its file's own")
    sys.exit(1 if found else 0)
