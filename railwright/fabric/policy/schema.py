"""Generates the JSON Schema (2020-12) of the policy document from the annotated types in `model`.

Relations between keys are in `checks`. An optional key may be null, which means unset.
"""

import json
from typing import Any

import msgspec

from railwright.fabric import names
from railwright.fabric.policy import model

Schema = dict[str, Any]

_NULL = {"type": "null"}


def build() -> Schema:
    """Return the schema of the document. Each call returns a new tree."""
    generated = json.dumps(msgspec.json.schema(model.PolicyDocument))
    root = json.loads(generated.replace(r'\\Z"', '$"'))  # ECMAScript has no \Z, and its $ matches at the end only
    for definition in root["$defs"].values():
        definition["description"] = " ".join(definition["description"].split())
        properties = definition.get("properties", {})
        for value in properties.values():
            if "anyOf" in (items := value.get("additionalProperties") or {}):  # a map of plain types
                value["additionalProperties"] = {"type": [choice["type"] for choice in items["anyOf"]]}
        for key in properties.keys() - set(definition.get("required", ())):
            properties[key] = _allow_null(properties[key])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"railwright policy, {names.POLICY_API_VERSION}",
        **root,
    }


def _allow_null(value: Schema) -> Schema:
    """Return the schema with null allowed. It uses `anyOf` only for a section."""
    rest = {
        key: item for key, item in value.items() if key not in ("anyOf", "$ref") and (key, item) != ("default", None)
    }
    choices = [choice for choice in value.get("anyOf", [value]) if choice != _NULL]
    if "$ref" in choices[0]:
        return {"anyOf": [{"$ref": choices[0]["$ref"]}, _NULL], **rest}
    types = [choice["type"] for choice in choices if "type" in choice]
    for choice in choices:
        rest |= choice
    return {**rest, "enum": [*rest["enum"], None]} if "enum" in rest else {**rest, "type": [*types, "null"]}
