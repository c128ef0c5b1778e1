"""Replaces invalid parts of a policy tree by neutral placeholders, so that the valid rest can still be checked.

`sentences` finds the invalid parts. A repaired tree is used to find further errors and never put in force.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from railwright.cluster import sentences

Path = tuple[str | int, ...]

_ZEROES: Mapping[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}


def repair(tree: Any, violations: Sequence[sentences.Violation], definitions: Mapping[str, sentences.Schema]) -> Any:
    """Return the tree with every invalid part replaced or removed; modifies `tree`."""
    holder = {"": tree}
    for violation in violations:
        _repair_part(holder, ("", *violation.path), violation, definitions)
    return holder[""]


def covers(path: Path, part: Path) -> bool:
    """True if `part` (in which "*" matches any step) lies at or below `path`."""
    return len(path) <= len(part) and all(pattern in ("*", step) for step, pattern in zip(path, part, strict=False))


def _repair_part(
    root: Any,
    path: Path,
    violation: sentences.Violation,
    definitions: Mapping[str, sentences.Schema],
) -> None:
    parent: Any = root
    for step in path[:-1]:
        try:
            parent = parent[step]
        except (KeyError, IndexError, TypeError):
            return  # a parent was replaced already
    key: Any = path[-1]
    if violation.repair == "replace" and isinstance(parent, dict | list):
        parent[key] = _build_placeholder(violation.schema, definitions)
    elif violation.repair == "remove" and isinstance(parent, dict):
        parent.pop(key, None)


def _build_placeholder(schema: sentences.Schema, definitions: Mapping[str, sentences.Schema]) -> Any:
    """Return the most neutral value of a schema: null if allowed, the last word of an enum (tcp), the empty list."""
    if "$ref" in schema:
        return _build_placeholder(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return None
    if "enum" in schema:
        return schema["enum"][-1]
    kind = schema.get("type", "string")
    if not isinstance(kind, str):
        return None
    if kind == "object":
        required = schema.get("required", ())
        return {key: _build_placeholder(schema["properties"][key], definitions) for key in required}
    return [] if kind == "array" else schema.get("minimum", _ZEROES[kind])
