"""The policy reference: a table for each section of the document, from its JSON Schema.

Owns the form. Every fact in it, and every word, comes from `railwright.fabric.policy`.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from railwright.fabric.policy import schema

Tree = Mapping[str, Any]
_BOUNDS = (
    ("minimum", "{} or more"),
    ("exclusiveMinimum", "above {}"),
    ("maximum", "{} or less"),
    ("minItems", "at least {}"),
    ("minProperties", "at least {}"),
)


def reference() -> str:
    """Markdown: a heading, a sentence and a table for each section, the whole document first."""
    definitions = schema.build()["$defs"]
    sections = {name: each for name, each in definitions.items() if each.get("type") == "object"}
    words = {name: each["enum"] for name, each in definitions.items() if "enum" in each}
    return "\n\n".join(_section(name, section, words) for name, section in sections.items())


def _section(name: str, section: Tree, words: Mapping[str, list[str]]) -> str:
    required = section.get("required", ())
    rows = [
        f"| `{key}` | {_type(value, words)} | {_default(value, needed=key in required)} | {_cell(value)} |"
        for key, value in section["properties"].items()
    ]
    head = ["| key | value | default | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {name}", "", section["description"], "", *head, *rows])


def _cell(value: Tree) -> str:
    return " ".join([value["description"], *_limits(value)]).replace("|", "\\|")


def _type(value: Tree, words: Mapping[str, list[str]]) -> str:
    """A word for what is written: a link to a section, the words allowed, or a JSON type."""
    if "anyOf" in value:
        value = next(each for each in value["anyOf"] if each.get("type") != "null")
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[-1]
        return _words(words[name]) if name in words else f"[{name}](#{name.lower()})"
    if "enum" in value:
        return _words([each for each in value["enum"] if each is not None])
    types = value["type"] if isinstance(value["type"], list) else [value["type"]]
    told = [each for each in types if each != "null"]
    if told == ["array"]:
        return f"list of {_type(value['items'], words)}"
    if told == ["object"]:
        return f"name: {_type(value['additionalProperties'], words)}"
    return " or ".join(told)


def _words(words: list[Any]) -> str:
    return ", ".join(f"`{each}`" for each in words)


def _default(value: Tree, *, needed: bool) -> str:
    if needed:
        return "**needed**"
    if isinstance(value.get("default"), dict) and value["default"]:
        return "those of its keys"
    return f"`{json.dumps(value['default'])}`" if "default" in value else "absent"


def _limits(value: Tree) -> Iterator[str]:
    """What else is checked of the value, of its items and of its keys, as sentences."""
    if "minimum" in value and "maximum" in value:
        yield f"{value['minimum']} to {value['maximum']}."
    else:
        told = [form.format(value[key]) for key, form in _BOUNDS if key in value]
        if told:
            yield f"{', '.join(told).capitalize()}."
    if "patternErrorMessage" in value:
        yield f"Must be {value['patternErrorMessage']}."
    for step, of in (("items", "Each"), ("propertyNames", "Each name"), ("additionalProperties", "Each value")):
        inner = value.get(step)
        if isinstance(inner, dict):
            for sentence in _limits(inner):
                yield f"{of}: {sentence[:1].lower()}{sentence[1:]}"
