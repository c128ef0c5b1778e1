"""Describes a value of the wrong type in a Kubernetes object, for its author."""

import re

import msgspec

_MISMATCH = re.compile(r"Expected `(?P<types>[^`]+)`, got `(?P<type>[^`]+)`(?: - at `\$\.?(?P<path>[^`]*)`)?")
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping (key: value)",
    "array": "a list",
}
_UNQUOTED = frozenset({"int", "float", "bool"})  # what YAML makes of 22, 0.5 and yes


def describe(error: msgspec.ValidationError) -> str:
    """Return path, expected type and fix; the error's own words if it is about something else."""
    match = _MISMATCH.fullmatch(str(error))
    if match is None:
        return str(error)
    types = [name for name in match["types"].split(" | ") if name != "null"]
    expected = " or ".join(_WORDS.get(name, name) for name in types)
    fix = "; put it in quotes" if "str" in types and match["type"] in _UNQUOTED else ""
    return f"{match['path'] or 'the object'}: expected {expected}, not {_WORDS.get(match['type'], match['type'])}{fix}"
