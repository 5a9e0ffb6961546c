#!/usr/bin/env python3
"""Holds proto/*.proto to what was released: fields may be added, and never removed, renumbered or retyped, since
processes of neighbouring releases speak to one another and read each other's records.

usage: schema.py ROOT            exit 0: no complaint; 1: complaints on stdout
       schema.py ROOT --update   takes the schema of now for the released one
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

RELEASED = "tests/house/schema.txt"
KINDS = {1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
         11: "message", 12: "bytes", 13: "uint32", 14: "enum", 15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64"}


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of a message in protobuf's encoding; descriptors hold numbers and bytes alone."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            raise ValueError(f"wire type {key & 7} in a descriptor")
        yield key >> 3, value


def text(message, number):
    return next((value.decode() for key, value in fields(message) if key == number), "")


def lines_of_message(message, outer):
    """descriptor.proto: name 1, field 2, nested_type 3, enum_type 4; of a field: number 3, label 4, type 5, type_name 6, oneof 9."""
    name = f"{outer}.{text(message, 1)}"
    for key, value in fields(message):
        if key == 2:
            told = dict(fields(value))
            kind = KINDS[told[5]] + (f" {told[6].decode()}" if 6 in told else "")
            yield f"{name} {told[3]}: {'repeated ' if told.get(4) == 3 else ''}{kind}{' of a oneof' if 9 in told else ''}"
        elif key == 3:
            yield from lines_of_message(value, name)
        elif key == 4:
            yield from lines_of_enum(value, name)


def lines_of_enum(enum, outer):
    for key, value in fields(enum):
        if key == 2:
            told = dict(fields(value))
            yield f"{outer}.{text(enum, 1)} {told.get(2, 0)}: value"


def schema(folder):
    """A line "message number: type" for each field; names are no part of what is sent."""
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", f"--descriptor_set_out={out.name}", "-I", str(folder),
                        *sorted(str(path) for path in folder.glob("*.proto"))], check=True, timeout=60)
        data = Path(out.name).read_bytes()
    found = []
    for _, file in fields(data):
        package = "." + text(file, 2)
        for key, value in fields(file):
            if key == 4:
                found += lines_of_message(value, package)
            elif key == 5:
                found += lines_of_enum(value, package)
    return sorted(found, key=lambda line: (line.split()[0], int(re.search(r" (-?\d+):", line)[1])))


def compare(released, now):
    ours = dict(line.split(": ", 1) for line in now)
    for line in released:
        what, kind = line.split(": ", 1)
        name, number = what.rsplit(" ", 1)
        if what not in ours:
            yield (f"{name}: number {number} ({kind}) is gone. Leave the field, unused if need be: the number must never mean "
                   "anything else.")
        elif ours[what] != kind:
            yield f"{name}: number {number} was {kind} and is {ours[what]}. Give the new one a number of its own."


if __name__ == "__main__":
    root = Path(sys.argv[1])
    current = schema(root / "proto")
    if sys.argv[2:] == ["--update"]:
        (root / RELEASED).write_text("\n".join(current) + "\n")
        sys.exit()
    complaints = list(compare((root / RELEASED).read_text().splitlines(), current))
    print("\n".join(complaints) or f"{len(current)} fields, all as they were released")
    sys.exit(1 if complaints else 0)
