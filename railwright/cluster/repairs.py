"""Unreadable parts of a policy tree -> neutral stand-ins, so that the readable rest can still be judged.

Owns which value stands in for what. Refuses to decide what is wrong: it is told by `sentences`. A repaired
tree is for finding more errors and is never put in force.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from railwright.cluster import sentences

Path = tuple[str | int, ...]

_ZEROES: Mapping[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}


def repair(tree: Any, violations: Sequence[sentences.Violation], definitions: Mapping[str, sentences.Schema]) -> Any:
    """The tree with every unreadable part replaced or removed; changes the given tree."""
    holder = {"": tree}
    for violation in violations:
        _mend(holder, ("", *violation.path), violation, definitions)
    return holder[""]


def covers(path: Path, part: Path) -> bool:
    """True when `part` (in which "*" is any one step) lies at or below `path`."""
    return len(path) <= len(part) and all(wanted in ("*", step) for step, wanted in zip(path, part, strict=False))


def _mend(
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
            return  # a part above was replaced already
    place: Any = path[-1]
    if violation.repair == "replace" and isinstance(parent, dict | list):
        parent[place] = _stand_in(violation.schema, definitions)
    elif violation.repair == "remove" and isinstance(parent, dict):
        parent.pop(place, None)


def _stand_in(schema: sentences.Schema, definitions: Mapping[str, sentences.Schema]) -> Any:
    """The most neutral value a schema admits: null where allowed, the last word (tcp), the empty list."""
    if "$ref" in schema:
        return _stand_in(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return None
    if "enum" in schema:
        return schema["enum"][-1]
    kind = schema.get("type", "string")
    if not isinstance(kind, str):
        return None
    if kind == "object":
        required = schema.get("required", ())
        return {key: _stand_in(schema["properties"][key], definitions) for key in required}
    return [] if kind == "array" else _ZEROES[kind]
