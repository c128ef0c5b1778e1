"""The JSON Schema (2020-12) of the policy document, generated from the structs of `model`.

Owns what a single key may hold: ranges and forms, as one table. Refuses to know relations between keys
(`checks`), lines and files. An optional key may be null everywhere, which means absent.
"""

from typing import Any

import msgspec

from railwright.fabric.policy import grammar, meanings, model

Schema = dict[str, Any]

_MAX_COUNT = 1024  # above any hardware: keeps a slip of the keyboard from asking for a million devices
_MAX_FACTOR = 1_000_000  # weights and scales beyond this drown every other score and lose float precision


def _between(least: int, most: int) -> Schema:
    return {"minimum": least, "maximum": most}


def _form(form: grammar.Form) -> Schema:
    # patternErrorMessage is what editors with a YAML language server show; our own sentences use it too
    return {"pattern": form.pattern, "patternErrorMessage": form.phrase}


# STRUCT.key is the key's value, `[]` each item of it, `{}` each key of a free map, `{=}` each value of one.
# NCCL's ranges, with -1 ("NCCL's own choice", its default) where NCCL takes it: knowledge, variables.json.
RULES: dict[str, Schema] = {
    "FabricPolicy.fabrics": {"minProperties": 1},
    "FabricPolicy.fabrics{}": _form(grammar.FABRIC_NAME),
    "FabricPolicy.accelerators": {"minItems": 1},
    "FabricPolicy.accelerators[]": _form(grammar.RESOURCE),
    "FabricPolicy.primaryInterface": _form(grammar.INTERFACE),
    "FabricPolicy.clusterWideNetworks": _between(0, _MAX_COUNT),
    "Fabric.gpusPerNode": _between(1, _MAX_COUNT),
    "Fabric.devicesPerRail": _between(1, _MAX_COUNT),
    "Fabric.annotations{}": _form(grammar.ANNOTATION_KEY),
    "Fabric.env{}": _form(grammar.ENV_NAME),
    "Fabric.env{=}": _form(grammar.ENV_VALUE),
    "Fabric.forceEnv[]": _form(grammar.ENV_NAME),
    "LabelSelector.matchLabels{}": _form(grammar.LABEL_KEY),
    "LabelSelector.matchLabels{=}": _form(grammar.LABEL_VALUE),
    "SelectorRequirement.key": _form(grammar.LABEL_KEY),
    "SelectorRequirement.values[]": _form(grammar.LABEL_VALUE),
    "Rail.name": _form(grammar.RAIL_NAME),
    "Rail.network": _form(grammar.NETWORK),
    "Rail.interface": _form(grammar.INTERFACE),
    "Rail.resource": _form(grammar.RESOURCE),
    "Rail.device": _form(grammar.DEVICE),
    "Security.capabilities[]": _form(grammar.CAPABILITY),
    "Nccl.gidIndex": _between(-1, 255),
    "Nccl.trafficClass": _between(-1, 255),
    "Nccl.fifoTrafficClass": _between(-1, 255),
    "Nccl.serviceLevel": _between(-1, 15),
    "Nccl.qpsPerConnection": _between(1, 128),
    "Nccl.timeout": _between(1, 31),
    "Nccl.retryCount": _between(0, 7),
    "Nccl.topologyFile": _form(grammar.ABSOLUTE_PATH),
    "Preflight.image": _form(grammar.IMAGE),
    "Preflight.mtu": _between(68, 65535),  # RFC 791: the least IPv4 MTU and the longest IPv4 packet
    "Placement.domains[]": _form(grammar.DOMAIN_KEY),
    "Placement.oversubscription[]": _between(1, _MAX_FACTOR),
    "Placement.scale": {"exclusiveMinimum": 0, "maximum": _MAX_FACTOR},
    "Weights.locality": _between(0, _MAX_FACTOR),
    "Weights.rails": _between(0, _MAX_FACTOR),
    "Weights.numa": _between(0, _MAX_FACTOR),
    "Weights.packing": _between(0, _MAX_FACTOR),
    "NodeShape.name": _form(grammar.SHAPE_NAME),
    "NodeShape.match{}": _form(grammar.LABEL_KEY),
    "NodeShape.match{=}": _form(grammar.LABEL_VALUE),
    "NodeShape.devices{=}": _form(grammar.DEVICE),
    "NumaNode.node": _between(0, _MAX_COUNT),
    "NumaNode.gpus[]": _between(0, _MAX_COUNT),
    "Roles.volcanoTasks{}": _form(grammar.TASK_NAME),
}


def build() -> Schema:
    """The schema of the whole document; every call gives a fresh tree."""
    root = msgspec.json.schema(model.FabricPolicy)
    definitions: dict[str, Schema] = root["$defs"]
    for definition in definitions.values():
        _tidy(definition)
    for target, rule in RULES.items():
        _at(definitions, target).update(rule)
    for target, meaning in meanings.MEANINGS.items():
        _at(definitions, target)["description"] = meaning
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{model.FabricPolicy.__name__} railwright.io/v1alpha1",
        **root,
    }


def _tidy(definition: Schema) -> None:
    if "description" in definition:
        definition["description"] = " ".join(definition["description"].split())
    required = definition.get("required", ())
    properties: dict[str, Schema] = definition.get("properties", {})
    for key, value in properties.items():
        if key not in required:
            properties[key] = _nullable(value)


def _nullable(value: Schema) -> Schema:
    """The same schema with null allowed, without `anyOf` where one `type` or `enum` can say it."""
    rest = {key: item for key, item in value.items() if key not in ("anyOf", "type", "enum", "$ref")}
    if rest.get("default", ...) is None:
        del rest["default"]
    choices = [choice for choice in value.get("anyOf", [value]) if choice.get("type") != "null"]
    if "$ref" in choices[0]:
        return {"anyOf": [{"$ref": choices[0]["$ref"]}, {"type": "null"}], **rest}
    if "enum" in choices[0]:
        return {"enum": [*choices[0]["enum"], None], **rest}
    return {**rest, "type": [*(choice["type"] for choice in choices), "null"]}


def _at(definitions: dict[str, Schema], target: str) -> Schema:
    """The subschema a row of RULES speaks of; KeyError if the model has no such key."""
    for suffix, step in (("{=}", "additionalProperties"), ("{}", "propertyNames"), ("[]", "items")):
        if target.endswith(suffix):
            whole = _at(definitions, target.removesuffix(suffix))
            found: Schema = whole.setdefault(step, {}) if step == "propertyNames" else whole[step]
            return found
    struct, key = target.split(".")
    value: Schema = definitions[struct]["properties"][key]
    return value
