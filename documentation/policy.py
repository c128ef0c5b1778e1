"""Formats the policy reference from the JSON Schema: a table for each section of the document."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from documentation import markdown
from railwright.fabric.policy import schema

Tree = Mapping[str, Any]
_BOUNDS = (
    ("minimum", "{} or more"),
    ("exclusiveMinimum", "above {}"),
    ("maximum", "{} or less"),
    ("minItems", "at least {}"),
    ("minProperties", "at least {}"),
)


def format_reference() -> str:
    """Return a heading, a sentence and a table for each section, in Markdown. The document itself is first."""
    definitions = schema.build_schema()["$defs"]
    sections = {name: definition for name, definition in definitions.items() if definition.get("type") == "object"}
    words = {name: definition["enum"] for name, definition in definitions.items() if "enum" in definition}
    return "\n\n".join(_format_section(name, section, words) for name, section in sections.items())


def _format_section(name: str, section: Tree, words: Mapping[str, list[str]]) -> str:
    required = section.get("required", ())
    rows = []
    for key, value in section["properties"].items():
        kind = _format_type(value, words)
        default = _format_default(value, is_required=key in required)
        example = "".join(map(_format_example, value.get("examples", ())))
        meaning = markdown.escape_cell(" ".join([value["description"], *_list_limits(value)]))
        rows.append((f"`{key}`", kind, default, meaning, example))
    table = markdown.format_table(("key", "value", "default", "meaning", "example"), rows)
    return f"## {name}\n\n{section['description']}\n\n{table}"


def _format_example(example: Any) -> str:
    """Return a value in one line of YAML."""
    text = json.dumps(example) if isinstance(example, dict | list | bool) else str(example)
    return markdown.escape_cell(f"`{text}`")


def _format_type(value: Tree, words: Mapping[str, list[str]]) -> str:
    """Return a link to a section, the allowed words, or a JSON type."""
    if "anyOf" in value:
        value = next(option for option in value["anyOf"] if option.get("type") != "null")
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[-1]
        return _format_words(words[name]) if name in words else f"[{name}](#{name.lower()})"
    if "enum" in value:
        return _format_words([word for word in value["enum"] if word is not None])
    types = value["type"] if isinstance(value["type"], list) else [value["type"]]
    texts = [type_name for type_name in types if type_name != "null"]
    if texts == ["array"]:
        return f"list of {_format_type(value['items'], words)}"
    if texts == ["object"]:
        return (
            f"name: {_format_type(value['additionalProperties'], words)}" if "additionalProperties" in value else "map"
        )
    return " or ".join(texts)


def _format_words(words: list[Any]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _format_default(value: Tree, *, is_required: bool) -> str:
    if is_required:
        return "**required**"
    if isinstance(value.get("default"), dict) and value["default"]:
        return "the defaults of its keys"
    return f"`{json.dumps(value['default'])}`" if "default" in value else "unset"


def _list_limits(value: Tree) -> Iterator[str]:
    """Yield the limits of the value, its items and its keys as sentences."""
    if "minimum" in value and "maximum" in value:
        yield f"{value['minimum']} to {value['maximum']}."
    else:
        texts = [form.format(value[key]) for key, form in _BOUNDS if key in value]
        if texts:
            yield f"{', '.join(texts).capitalize()}."
    if "patternErrorMessage" in value:
        yield f"Must be {value['patternErrorMessage']}."
    for step, subject in (("items", "Each"), ("propertyNames", "Each name"), ("additionalProperties", "Each value")):
        inner = value.get(step)
        if isinstance(inner, dict):
            for sentence in _list_limits(inner):
                yield f"{subject}: {sentence[:1].lower()}{sentence[1:]}"
