"""Generates the JSON Schema (2020-12) of the policy document from the types in `model`.

`RULES` has the ranges and formats of single keys; relations between keys are in `checks`. An optional key may be null,
which means unset.
"""

from typing import Any

import msgspec

from railwright.fabric.policy import descriptions, formats, model

Schema = dict[str, Any]

_MAX_COUNT = 1024  # above any hardware; rejects typing errors that would request a million devices
_MAX_FACTOR = 1_000_000  # larger weights and scales exceed every other score and lose float precision


def _limit(minimum: int, maximum: int) -> Schema:
    return {"minimum": minimum, "maximum": maximum}


def _match(text_format: formats.Format) -> Schema:
    # YAML language servers show patternErrorMessage in editors; railwright's own messages use it, too
    return {"pattern": text_format.pattern, "patternErrorMessage": text_format.phrase}


# `STRUCT.key` is the key's value, `[]` each item of a list, `{}` each key of a free map, `{=}` each value of one.
# Ranges of `Nccl` are those of NCCL's variables (fabric/nccl/variables.json); -1 is NCCL's default, its own choice.
RULES: dict[str, Schema] = {
    "FabricPolicy.fabrics": {"minProperties": 1},
    "FabricPolicy.fabrics{}": _match(formats.FABRIC_NAME),
    "FabricPolicy.accelerators": {"minItems": 1},
    "FabricPolicy.accelerators[]": _match(formats.RESOURCE),
    "FabricPolicy.primaryInterface": _match(formats.INTERFACE),
    "FabricPolicy.clusterWideNetworks": _limit(0, _MAX_COUNT),
    "Fabric.gpusPerNode": _limit(1, _MAX_COUNT),
    "Fabric.devicesPerRail": _limit(1, _MAX_COUNT),
    "Fabric.annotations{}": _match(formats.ANNOTATION_KEY),
    "Fabric.env{}": _match(formats.ENV_NAME),
    "Fabric.env{=}": _match(formats.ENV_VALUE),
    "Fabric.forceEnv[]": _match(formats.ENV_NAME),
    "LabelSelector.matchLabels{}": _match(formats.LABEL_KEY),
    "LabelSelector.matchLabels{=}": _match(formats.LABEL_VALUE),
    "SelectorRequirement.key": _match(formats.LABEL_KEY),
    "SelectorRequirement.values[]": _match(formats.LABEL_VALUE),
    "Rail.name": _match(formats.RAIL_NAME),
    "Rail.network": _match(formats.NETWORK),
    "Rail.interface": _match(formats.INTERFACE),
    "Rail.resource": _match(formats.RESOURCE),
    "Rail.device": _match(formats.DEVICE),
    "RailClaim.deviceName": _match(formats.CLAIMED_DEVICE),
    "RailClaim.pciAddress": _match(formats.PCI_ADDRESS),
    "RailClaim.value": _match(formats.ATTRIBUTE_VALUE),
    "RailClaim.expression": _match(formats.EXPRESSION),
    "Claims.deviceClass": _match(formats.DEVICE_CLASS),
    "Claims.driverName": _match(formats.DRIVER),
    "Claims.railAttribute": _match(formats.ATTRIBUTE),
    "Claims.pairBy": _match(formats.PAIR_BY),
    "ClaimedAccelerators.deviceClass": _match(formats.DEVICE_CLASS),
    "Security.capabilities[]": _match(formats.CAPABILITY),
    "Nccl.gidIndex": _limit(-1, 255),
    "Nccl.trafficClass": _limit(-1, 255),
    "Nccl.fifoTrafficClass": _limit(-1, 255),
    "Nccl.serviceLevel": _limit(-1, 15),
    "Nccl.qpsPerConnection": _limit(1, 128),
    "Nccl.timeout": _limit(1, 31),
    "Nccl.retryCount": _limit(0, 7),
    "Nccl.topologyFile": _match(formats.ABSOLUTE_PATH),
    "Preflight.image": _match(formats.IMAGE),
    "Preflight.mtu": _limit(68, 65535),  # RFC 791: smallest IPv4 MTU and largest IPv4 packet, in bytes
    "Placement.domains[]": _match(formats.DOMAIN_KEY),
    "Placement.oversubscription[]": _limit(1, _MAX_FACTOR),
    "Placement.scale": {"exclusiveMinimum": 0, "maximum": _MAX_FACTOR},
    "Weights.locality": _limit(0, _MAX_FACTOR),
    "Weights.rails": _limit(0, _MAX_FACTOR),
    "Weights.numa": _limit(0, _MAX_FACTOR),
    "Weights.packing": _limit(0, _MAX_FACTOR),
    "NodeShape.name": _match(formats.SHAPE_NAME),
    "NodeShape.match{}": _match(formats.LABEL_KEY),
    "NodeShape.match{=}": _match(formats.LABEL_VALUE),
    "NodeShape.devices{=}": _match(formats.DEVICE),
    "NodeShape.acceleratorsOfRail{}": _match(formats.RAIL_NAME),
    "NodeShape.acceleratorsOfRail{=}": {"minItems": 1},
    "NodeShape.acceleratorsOfRail{=}[]": _match(formats.PCI_ADDRESS),
    "NumaNode.node": _limit(0, _MAX_COUNT),
    "NumaNode.gpus[]": _limit(0, _MAX_COUNT),
    "Roles.volcanoTasks{}": _match(formats.TASK_NAME),
}


def build() -> Schema:
    """Return the schema of the document. Each call returns a new tree."""
    root = msgspec.json.schema(model.FabricPolicy)
    definitions: dict[str, Schema] = root["$defs"]
    for definition in definitions.values():
        _make_optional_nullable(definition)
    for target, rule in RULES.items():
        _find_subschema(definitions, target).update(rule)
    for target, description in descriptions.DESCRIPTIONS.items():
        _find_subschema(definitions, target)["description"] = description
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{model.FabricPolicy.__name__} railwright.io/v1alpha1",
        **root,
    }


def _make_optional_nullable(definition: Schema) -> None:
    if "description" in definition:
        definition["description"] = " ".join(definition["description"].split())
    required = definition.get("required", ())
    properties: dict[str, Schema] = definition.get("properties", {})
    for key, value in properties.items():
        if key not in required:
            properties[key] = _allow_null(value)


def _allow_null(value: Schema) -> Schema:
    """Return the schema with null allowed. It uses `anyOf` only if neither `type` nor `enum` suffices."""
    rest = {key: item for key, item in value.items() if key not in ("anyOf", "type", "enum", "$ref")}
    if rest.get("default", ...) is None:
        del rest["default"]
    choices = [choice for choice in value.get("anyOf", [value]) if choice.get("type") != "null"]
    if "$ref" in choices[0]:
        return {"anyOf": [{"$ref": choices[0]["$ref"]}, {"type": "null"}], **rest}
    if "enum" in choices[0]:
        return {"enum": [*choices[0]["enum"], None], **rest}
    return {**rest, "type": [*(choice["type"] for choice in choices), "null"]}


def _find_subschema(definitions: dict[str, Schema], target: str) -> Schema:
    """Return the subschema that a key of RULES names. Raises KeyError if the model has no such key."""
    for suffix, step in (("{=}", "additionalProperties"), ("{}", "propertyNames"), ("[]", "items")):
        if target.endswith(suffix):
            parent = _find_subschema(definitions, target.removesuffix(suffix))
            subschema: Schema = parent.setdefault(step, {}) if step == "propertyNames" else parent[step]
            return subschema
    struct, key = target.split(".")
    value: Schema = definitions[struct]["properties"][key]
    return value
