"""Checks relations between the keys of one fabric (docs/interface.md 2). Paths are relative to the fabric."""

import ipaddress
from collections.abc import Callable, Iterator

from railwright.fabric import names, quantity, text, topology
from railwright.fabric.policy import findings, model, presets

_OPERATORS_WITH_VALUES = ("In", "NotIn")


def _check_selector(fabric: model.Fabric) -> Iterator[findings.Finding]:
    for index, expression in enumerate(fabric.namespaces.match_expressions):
        path: findings.Path = ("namespaces", "matchExpressions", index, "values")
        depends_on: tuple[findings.Path, ...] = (("fabrics", "*", "namespaces", "matchExpressions", index, "operator"),)
        if expression.operator in _OPERATORS_WITH_VALUES:
            if not expression.values:
                yield findings.Finding(path, f"operator {expression.operator} needs at least one value", depends_on)
        elif expression.values:
            yield findings.Finding(path, f"operator {expression.operator} takes no values; remove them", depends_on)


def _check_rails(fabric: model.Fabric) -> Iterator[findings.Finding]:
    if not fabric.rails and fabric.transport is not model.Transport.TCP:
        yield findings.Finding(
            ("rails",),
            f"is missing: a fabric with transport {fabric.transport} needs at least one rail, "
            "such as [{name: rail0}]; only tcp needs none",
            (("fabrics", "*", "transport"),),
        )
    if fabric.transport is model.Transport.PVRDMA and len(fabric.rails) > 1:
        yield findings.Finding(
            ("rails",),
            f"has {len(fabric.rails)} rails, but a virtual machine has only one PVRDMA device: keep one rail",
        )
    for index in findings.find_repeated([rail.name for rail in fabric.rails]):
        yield findings.Finding(
            ("rails", index, "name"),
            f"{findings.quote(fabric.rails[index].name)} is the name of an earlier rail; rail names must be unique",
        )


def _check_rail_values(fabric: model.Fabric) -> Iterator[findings.Finding]:
    for index, rail in enumerate(fabric.rails):
        if rail.name.isdigit():
            yield findings.Finding(
                ("rails", index, "name"),
                f"{findings.quote(rail.name)} would be read as a count in the annotation {names.RAILS}; "
                f"use a name such as rail{rail.name}",
            )
        if rail.resource is not None:
            yield from findings.check_extended_resource(("rails", index, "resource"), rail.resource)


def _check_proportional(fabric: model.Fabric) -> Iterator[findings.Finding]:
    if fabric.rails_per_pod == "proportional" and fabric.gpus_per_node is None:
        yield findings.Finding(
            ("gpusPerNode",),
            "is missing: railsPerPod proportional needs the number of GPUs of a node, such as 8",
        )


def _check_annotations(fabric: model.Fabric) -> Iterator[findings.Finding]:
    for key in fabric.annotations:
        if key == names.NETWORKS:
            yield findings.Finding(("annotations", key), "is generated from the rails; set their `network` instead")
        elif key.startswith(f"{names.DOMAIN}/"):
            yield findings.Finding(("annotations", key), f"keys of {names.DOMAIN} are set by railwright; remove it")


def _check_shared_memory(fabric: model.Fabric) -> Iterator[findings.Finding]:
    text = fabric.mounts.shared_memory
    if text is None:
        return
    try:
        size = quantity.parse(text)
    except quantity.InvalidQuantityError:
        size = quantity.parse("0")
    if size <= 0 or size.denominator != 1:
        yield findings.Finding(
            ("mounts", "sharedMemory"),
            f"{findings.quote(text)} is not a positive number of bytes; set a quantity such as 64Gi",
        )


def _check_address_range(fabric: model.Fabric) -> Iterator[findings.Finding]:
    prefix, family = fabric.nccl.address_range, fabric.nccl.address_family
    if prefix is None:
        return
    path: findings.Path = ("nccl", "addressRange")
    try:
        version = ipaddress.ip_network(prefix, strict=False).version if "/" in prefix else None
    except ValueError:
        version = None
    if version is None or "%" in prefix or not prefix.rpartition("/")[2].isdigit():
        example = "fd00::/8" if family == "AF_INET6" else "192.168.0.0/16"
        message = f"{findings.quote(prefix)} is not an address prefix; set one, such as {example}"
        yield findings.Finding(path, message)
    elif version != (6 if family == "AF_INET6" else 4):
        other = "AF_INET" if version == 4 else "AF_INET6"
        yield findings.Finding(
            path,
            f"{findings.quote(prefix)} is not of the family {family or 'AF_INET (the default)'}, so no GID would "
            f"match; set addressFamily: {other} or change the range",
            (("fabrics", "*", "nccl", "addressFamily"),),
        )


def _check_placement(fabric: model.Fabric) -> Iterator[findings.Finding]:
    placement = fabric.placement
    for index in findings.find_repeated(placement.domains):
        yield findings.Finding(
            ("placement", "domains", index),
            f"{findings.quote(placement.domains[index])} is listed twice; each domain label counts once",
        )
    for index, key in enumerate(placement.domains):
        if topology.RAIL in key and not fabric.rails:
            message = (
                f"{findings.quote(key)} stands for a label of each rail, but the fabric has no rails; "
                "add rails or use another label"
            )
            yield findings.Finding(("placement", "domains", index), message, (("fabrics", "*", "rails"),))
    levels = presets.list_domain_keys(placement)
    if len(placement.oversubscription) > len(levels):
        yield findings.Finding(
            ("placement", "oversubscription"),
            f"has {text.format_count(len(placement.oversubscription), 'value')} for "
            f"{text.format_count(len(levels), 'domain')}; "
            "give at most one for each domain, closest first",
            (("fabrics", "*", "placement", "domains"), ("fabrics", "*", "placement", "preset")),
        )
    if placement.uplinks is not None and not levels:
        yield findings.Finding(
            ("placement", "uplinks"),
            "describes the uplinks of domains, but there are no domains; set domains or preset, or remove uplinks",
            (("fabrics", "*", "placement", "domains"), ("fabrics", "*", "placement", "preset")),
        )
    weights = placement.weights
    if not (weights.locality or weights.rails or weights.numa or weights.packing):
        yield findings.Finding(
            ("placement", "weights"), "are all 0, so all nodes get the same score; set at least one above 0"
        )


RULES: tuple[Callable[[model.Fabric], Iterator[findings.Finding]], ...] = (
    _check_selector,
    _check_rails,
    _check_rail_values,
    _check_proportional,
    _check_annotations,
    _check_shared_memory,
    _check_address_range,
    _check_placement,
)
