"""Judges a document by a JSON Schema, as far as the schemas in tools/schema go (tests/tools/schema.h does so for C++)."""

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "tools/schema"
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}
SAYS_NOTHING = {"$schema", "title", "description"}
KNOWN = SAYS_NOTHING | {"type", "const", "minimum", "properties", "required", "additionalProperties", "items"}


def is_a(value, kind):
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def offences(schema, value, path="$"):
    """Sentences about all that is not as the schema says. A keyword that is unknown here is an offence as well."""
    for word in sorted(schema.keys() - KNOWN):
        yield f"{path}: nobody checks the keyword {word}"
    if "const" in schema and value != schema["const"]:
        yield f"{path} is {value!r}, not {schema['const']!r}"
    if "type" in schema and not is_a(value, schema["type"]):
        yield f"{path} is {value!r}, not of type {schema['type']}"
    elif "minimum" in schema and value < schema["minimum"]:
        yield f"{path} is {value!r}, less than {schema['minimum']}"
    elif isinstance(value, dict):
        yield from offences_of_members(schema, value, path)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from offences(schema["items"], item, f"{path}[{index}]")


def offences_of_members(schema, value, path):
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", []):
        if name not in value:
            yield f"{path} has no {name}"
    for name, member in value.items():
        if name in known or isinstance(others, dict):
            yield from offences(known.get(name, others), member, f"{path}.{name}")
        elif others is False:
            yield f"{path} has {name}, which the schema does not know"


def assert_fits(name, document):
    """The document is what tools/schema/NAME.json says."""
    found = list(offences(json.loads((FOLDER / f"{name}.json").read_text()), document))
    assert not found, "\n".join(found)
