"""Relations between the keys of one fabric (CONTRACT section 2, rulings 6 to 8).

Owns one small rule a topic. Refuses to know other fabrics and node shapes; paths are relative to the fabric.
"""

import ipaddress
from collections.abc import Callable, Iterator

from railwright.fabric import names, quantity, topology
from railwright.fabric.policy import findings, model, presets

_OPERATORS_WITH_VALUES = ("In", "NotIn")


def _selector(fabric: model.Fabric) -> Iterator[findings.Finding]:
    for index, expression in enumerate(fabric.namespaces.match_expressions):
        path: findings.Path = ("namespaces", "matchExpressions", index, "values")
        rests: tuple[findings.Path, ...] = (("fabrics", "*", "namespaces", "matchExpressions", index, "operator"),)
        if expression.operator in _OPERATORS_WITH_VALUES:
            if not expression.values:
                yield findings.Finding(path, f"operator {expression.operator} needs at least one value", rests)
        elif expression.values:
            yield findings.Finding(path, f"operator {expression.operator} takes no values; remove them", rests)


def _rails(fabric: model.Fabric) -> Iterator[findings.Finding]:
    if not fabric.rails and fabric.transport is not model.Transport.TCP:
        yield findings.Finding(
            ("rails",),
            f"is missing: a fabric with transport {fabric.transport} needs at least one rail, "
            "such as [{name: rail0}]; only tcp may have none",
            (("fabrics", "*", "transport"),),
        )
    if fabric.transport is model.Transport.PVRDMA and len(fabric.rails) > 1:
        yield findings.Finding(
            ("rails",),
            f"has {len(fabric.rails)} rails, but PVRDMA gives a virtual machine one device: keep one rail",
        )
    for index in findings.repeated([rail.name for rail in fabric.rails]):
        yield findings.Finding(
            ("rails", index, "name"),
            f"{findings.quoted(fabric.rails[index].name)} already names an earlier rail; rail names must be unique",
        )


def _rail_values(fabric: model.Fabric) -> Iterator[findings.Finding]:
    for index, rail in enumerate(fabric.rails):
        if rail.name.isdigit():
            yield findings.Finding(
                ("rails", index, "name"),
                f"{findings.quoted(rail.name)} would read as a count in the annotation {names.RAILS}; "
                f"use a name such as rail{rail.name}",
            )
        if rail.resource is not None:
            yield from findings.extended_resource(("rails", index, "resource"), rail.resource)


def _proportional(fabric: model.Fabric) -> Iterator[findings.Finding]:
    if fabric.rails_per_pod == "proportional" and fabric.gpus_per_node is None:
        yield findings.Finding(
            ("gpusPerNode",),
            "is missing: railsPerPod proportional needs the number of GPUs of a node, such as 8",
        )


def _annotations(fabric: model.Fabric) -> Iterator[findings.Finding]:
    for key in fabric.annotations:
        if key == names.NETWORKS:
            yield findings.Finding(("annotations", key), "is written from the rails; set their `network` instead")
        elif key.startswith(f"{names.DOMAIN}/"):
            yield findings.Finding(("annotations", key), f"keys of {names.DOMAIN} are railwright's own; remove it")


def _shared_memory(fabric: model.Fabric) -> Iterator[findings.Finding]:
    written = fabric.mounts.shared_memory
    if written is None:
        return
    try:
        size = quantity.parse(written)
    except quantity.InvalidQuantityError:
        size = quantity.parse("0")
    if size <= 0 or size.denominator != 1:
        yield findings.Finding(
            ("mounts", "sharedMemory"),
            f"{findings.quoted(written)} is not a positive number of bytes; write a quantity such as 64Gi",
        )


def _address_range(fabric: model.Fabric) -> Iterator[findings.Finding]:
    written, family = fabric.nccl.address_range, fabric.nccl.address_family
    if written is None:
        return
    path: findings.Path = ("nccl", "addressRange")
    try:
        version = ipaddress.ip_network(written, strict=False).version if "/" in written else None
    except ValueError:
        version = None
    if version is None or "%" in written or not written.rpartition("/")[2].isdigit():
        example = "fd00::/8" if family == "AF_INET6" else "192.168.0.0/16"
        message = f"{findings.quoted(written)} is not an address prefix; write one, such as {example}"
        yield findings.Finding(path, message)
    elif version != (6 if family == "AF_INET6" else 4):
        other = "AF_INET" if version == 4 else "AF_INET6"
        yield findings.Finding(
            path,
            f"{findings.quoted(written)} is not of the family {family or 'AF_INET (the default)'}, so NCCL would match "
            f"nothing; set addressFamily: {other} or change the range",
            (("fabrics", "*", "nccl", "addressFamily"),),
        )


def _placement(fabric: model.Fabric) -> Iterator[findings.Finding]:
    placement = fabric.placement
    for index in findings.repeated(placement.domains):
        yield findings.Finding(
            ("placement", "domains", index),
            f"{findings.quoted(placement.domains[index])} is listed twice; each domain label counts once",
        )
    for index, key in enumerate(placement.domains):
        if topology.RAIL in key and not fabric.rails:
            message = f"{findings.quoted(key)} wants a label of each rail, and the fabric has no rails"
            yield findings.Finding(("placement", "domains", index), message, (("fabrics", "*", "rails"),))
    levels = presets.domains(placement)
    if len(placement.oversubscription) > len(levels):
        yield findings.Finding(
            ("placement", "oversubscription"),
            f"has {len(placement.oversubscription)} values for {len(levels)} domains; "
            "give at most one for each domain, closest first",
            (("fabrics", "*", "placement", "domains"), ("fabrics", "*", "placement", "preset")),
        )
    if placement.uplinks is not None and not levels:
        yield findings.Finding(
            ("placement", "uplinks"),
            "says how domains are left, and there are no domains; name them by domains or preset, or leave uplinks out",
            (("fabrics", "*", "placement", "domains"), ("fabrics", "*", "placement", "preset")),
        )
    weights = placement.weights
    if not (weights.locality or weights.rails or weights.numa or weights.packing):
        yield findings.Finding(
            ("placement", "weights"), "are all 0, so that no node is the better one; raise at least one"
        )


RULES: tuple[Callable[[model.Fabric], Iterator[findings.Finding]], ...] = (
    _selector,
    _rails,
    _rail_values,
    _proportional,
    _annotations,
    _shared_memory,
    _address_range,
    _placement,
)
