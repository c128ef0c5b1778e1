"""Finds an example of each key of the policy in the shipped policies."""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from documentation import examples
from railwright.fabric.policy import schema

_MANIFESTS = examples.ROOT / "manifests"
# keys that no shipped policy sets
_OTHERS: Mapping[tuple[str, str], Any] = {
    ("SelectorRequirement", "key"): "team",
    ("SelectorRequirement", "operator"): "In",
    ("SelectorRequirement", "values"): ["vision", "speech"],
    ("RailClaim", "deviceName"): "pci-0000-20-1b-0",
    ("RailClaim", "pciAddress"): "0000:20:1b.0",
    ("RailClaim", "expression"): 'has(device.attributes["dra.net"].rdma)',
    ("Claims", "driverName"): "nic.example.com",
    ("Claims", "parameters"): {"mtu": 9000},
    ("Nccl", "gidIndex"): 3,
    ("Nccl", "addressFamily"): "AF_INET6",
    ("Nccl", "fifoTrafficClass"): 192,
    ("Nccl", "serviceLevel"): 1,
    ("Nccl", "qpsPerConnection"): 4,
    ("Nccl", "adaptiveRouting"): True,
    ("Nccl", "gdrLevel"): "SYS",
    ("Nccl", "topologyFile"): "/etc/nccl/topo.xml",
    ("Placement", "uplinks"): "rail",
    ("Fabric", "mode"): "audit",
}


def find_examples() -> Mapping[tuple[str, str], Any]:
    """Return the value of each (section, key); the first shipped policy that sets it counts."""
    definitions = schema.build()["$defs"]
    values: dict[tuple[str, str], Any] = {}
    for document in _read_policies():
        for section, key, value in _walk("FabricPolicy", document, definitions):
            values.setdefault((section, key), value)
    return {**_OTHERS, **values}


def format_example(value: Any) -> str:
    """Return a value in one line of YAML; "" for sections, which have examples of their own."""
    if isinstance(value, dict):
        is_plain = bool(value) and not any(isinstance(item, dict | list) for item in value.values())
        return _dump(value) if is_plain else ""
    if isinstance(value, list):
        return "" if any(isinstance(item, dict) for item in value) else _dump(value)
    return _dump(value)


def _dump(value: Any) -> str:
    text = json.dumps(value) if isinstance(value, dict | list | bool) else str(value)
    return f"`{text}`".replace("|", "\\|")


def _read_policies() -> Iterator[Any]:
    sites = _MANIFESTS / "examples"
    examples_of_sites = (*sorted(sites.glob("*/policy.yaml")), *sorted(sites.glob("claims/*.yaml")))
    for path in (_MANIFESTS / "base" / "policy.yaml", *examples_of_sites):
        document = _read(path)
        yield _read_text(document["data"]["policy.yaml"]) if document["kind"] == "ConfigMap" else document


def _read(path: pathlib.Path) -> Any:
    return _read_text(path.read_text(encoding="utf-8"))


def _read_text(text: str) -> Any:
    return yaml.safe_load(text)


def _walk(section: str, tree: Any, definitions: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield section, key and value of everything that a part of a policy sets."""
    for key, shape in definitions[section]["properties"].items():
        if not isinstance(tree, dict) or tree.get(key) is None:
            continue
        yield section, key, tree[key]
        for name, parts in _list_parts(shape, tree[key]):
            if definitions[name].get("type") == "object":
                for part in parts:
                    yield from _walk(name, part, definitions)


def _list_parts(shape: Any, value: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the name of the section that a value has, and the value or its elements."""
    shape = next((choice for choice in shape.get("anyOf", ()) if choice.get("type") != "null"), shape)
    for inner, parts in (
        (shape, [value]),
        (shape.get("items"), value if isinstance(value, list) else []),
        (shape.get("additionalProperties"), [*value.values()] if isinstance(value, dict) else []),
    ):
        if isinstance(inner, dict) and "$ref" in inner:
            yield inner["$ref"].rsplit("/", 1)[-1], parts
