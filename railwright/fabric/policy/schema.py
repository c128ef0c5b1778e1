"""Generates the JSON Schema (2020-12) of the policy document from the types in `model`.

The schema lacks the rules about several keys, which are in `checks`. An optional key may be null, which means unset.
"""

import json
from typing import Any

import msgspec

from railwright.fabric import names
from railwright.fabric.policy import model

Schema = dict[str, Any]

_NULL = {"type": "null"}


def build_schema() -> Schema:
    """Return the JSON Schema of the policy document, as a new tree at each call."""
    generated = json.dumps(msgspec.json.schema(model.PolicyDocument))
    root = json.loads(generated.replace(r'\\Z"', '$"'))  # ECMAScript has no \Z, and its $ matches at the end only
    for definition in root["$defs"].values():
        definition["description"] = " ".join(definition["description"].split())
        properties = definition.get("properties", {})
        for value in properties.values():
            for part in (value, value.get("additionalProperties"), value.get("items")):
                if isinstance(part, dict):
                    _join_types(part)
        for key in properties.keys() - set(definition.get("required", ())):
            properties[key] = _allow_null(properties[key])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"railwright policy, {names.POLICY_API_VERSION}",
        **root,
    }


def _join_types(value: Schema) -> None:
    """Replace `anyOf` over types without $ref by one schema with a list of types. Modifies `value`."""
    choices = [choice for choice in value.get("anyOf", ()) if choice != _NULL]
    if choices and not any("$ref" in choice for choice in choices):
        del value["anyOf"]
        for choice in choices:
            value |= choice
        if len(choices) > 1:
            value["type"] = [choice["type"] for choice in choices]


def _allow_null(value: Schema) -> Schema:
    """Return the schema of a key with null allowed: in `type` or `enum`, or by `anyOf` if the schema has $ref."""
    rest = {key: item for key, item in value.items() if (key, item) != ("default", None)}
    references = [choice for choice in (value, *value.get("anyOf", ())) if "$ref" in choice]
    if references:
        rest = {key: item for key, item in rest.items() if key not in ("anyOf", "$ref")}
        return {"anyOf": [{"$ref": references[0]["$ref"]}, _NULL], **rest}
    if "enum" in rest:
        return {**rest, "enum": [*rest["enum"], None]}
    types = rest["type"] if isinstance(rest["type"], list) else [rest["type"]]
    return {**rest, "type": [*types, "null"]}
