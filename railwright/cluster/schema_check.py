"""Decides whether a tree is valid for the policy's schema, without the library that lists the errors.

Almost every policy that is read is valid, and jsonschema is slow to import. A tree that this module does not accept is
checked again with jsonschema, which finds the errors: `sentences.list_violations`.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = Mapping[str, Any]


def is_valid(schema: Schema, tree: Any, definitions: Mapping[str, Schema]) -> bool:
    """Return True if a tree is valid; False if it is not, or if the schema has a keyword that is unknown here."""
    return all(
        keyword in _ANNOTATIONS or (keyword in _CHECKS and _CHECKS[keyword](value, tree, schema, definitions))
        for keyword, value in schema.items()
    )


def is_integer(value: Any) -> bool:
    """Return True for a whole number; 3.0 and True are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Return True for a number; True is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@functools.cache
def compile_pattern(pattern: str) -> Callable[[str], object]:
    """Return a function that matches a whole text: `$` does not match before a final newline."""
    return re.compile(pattern).fullmatch


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": is_integer,
    "number": is_number,
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}
_Check = Callable[[Any, Any, Schema, Mapping[str, Schema]], bool]  # the keyword's value, tree, schema, definitions


def _check_type(types: Any, tree: Any, _schema: Schema, _definitions: Mapping[str, Schema]) -> bool:
    return any(_TYPES[name](tree) for name in ([types] if isinstance(types, str) else types))


def _check_enum(words: Any, tree: Any, _schema: Schema, _definitions: Mapping[str, Schema]) -> bool:
    return (tree is None or isinstance(tree, str)) and tree in words  # the policy's enums are words and null


def _check_pattern(pattern: Any, tree: Any, _schema: Schema, _definitions: Mapping[str, Schema]) -> bool:
    return not isinstance(tree, str) or compile_pattern(pattern)(tree) is not None


def _check_properties(properties: Any, tree: Any, _schema: Schema, definitions: Mapping[str, Schema]) -> bool:
    return not isinstance(tree, dict) or all(
        is_valid(schema, tree[key], definitions) for key, schema in properties.items() if key in tree
    )


def _check_others(other: Any, tree: Any, schema: Schema, definitions: Mapping[str, Schema]) -> bool:
    """Check the values of keys that `properties` does not name."""
    values = [tree[key] for key in tree if key not in schema.get("properties", ())] if isinstance(tree, dict) else []
    return not values if other is False else all(is_valid(other, value, definitions) for value in values)


def _check_keys(schema: Any, tree: Any, _schema: Schema, definitions: Mapping[str, Schema]) -> bool:
    return not isinstance(tree, dict) or all(is_valid(schema, key, definitions) for key in tree)


def _check_items(schema: Any, tree: Any, _schema: Schema, definitions: Mapping[str, Schema]) -> bool:
    return not isinstance(tree, list) or all(is_valid(schema, item, definitions) for item in tree)


_ANNOTATIONS = frozenset({"$schema", "$defs", "title", "description", "default", "patternErrorMessage"})
_CHECKS: Mapping[str, _Check] = {
    "type": _check_type,
    "enum": _check_enum,
    "pattern": _check_pattern,
    "minimum": lambda least, tree, *_: not is_number(tree) or tree >= least,
    "maximum": lambda most, tree, *_: not is_number(tree) or tree <= most,
    "exclusiveMinimum": lambda above, tree, *_: not is_number(tree) or tree > above,
    "required": lambda keys, tree, *_: not isinstance(tree, dict) or tree.keys() >= set(keys),
    "minItems": lambda least, tree, *_: not isinstance(tree, list) or len(tree) >= least,
    "minProperties": lambda least, tree, *_: not isinstance(tree, dict) or len(tree) >= least,
    "properties": _check_properties,
    "additionalProperties": _check_others,
    "propertyNames": _check_keys,
    "items": _check_items,
    "$ref": lambda name, tree, _, definitions: is_valid(definitions[name.rpartition("/")[2]], tree, definitions),
    "anyOf": lambda choices, tree, _, definitions: any(is_valid(choice, tree, definitions) for choice in choices),
}
