"""Checks relations between keys of a policy document, which the schema of single keys cannot express.

This module has the rules about the entire document and its node shapes. The rules about one fabric are in
`fabric_checks`. The input is an already typed document, and each finding has a path in it (docs/interface.md 2).
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from railwright.fabric import names
from railwright.fabric.policy import claim_checks, fabric_checks, findings, model

Finding = findings.Finding

_RAIL_NAMES: findings.Path = ("fabrics", "*", "rails", "*", "name")
_RESERVED = (names.FABRIC_DEFAULT, names.FABRIC_NONE)  # label values that are not names of fabrics


def check(document: model.FabricPolicy) -> tuple[Finding, ...]:
    """Return a finding for each violated rule, in the order of the rules; empty if the document is valid."""
    violations: list[Finding] = []
    for rule in _RULES:
        violations.extend(rule(document))
    for name, fabric in document.fabrics.items():
        for fabric_rule in fabric_checks.RULES:
            violations.extend(_prefix_paths(("fabrics", name), fabric_rule(fabric)))
        violations.extend(_prefix_paths(("fabrics", name), claim_checks.check(fabric, document.node_shapes)))
    for index, shape in enumerate(document.node_shapes):
        violations.extend(_prefix_paths(("nodeShapes", index), _check_numa_nodes(shape)))
    return tuple(violations)


def _prefix_paths(prefix: findings.Path, relative: Iterator[Finding]) -> Iterator[Finding]:
    for finding in relative:
        yield dataclasses.replace(finding, path=(*prefix, *finding.path))


def _check_default_fabric(document: model.FabricPolicy) -> Iterator[Finding]:
    name = document.default_fabric
    if name is not None and name not in document.fabrics:
        fabric_names = findings.join_names(document.fabrics)
        message = f"{findings.quote(name)} is not a fabric of this policy; name one of: {fabric_names}"
        yield Finding(("defaultFabric",), message, (("fabrics",),))


def _check_fabric_names(document: model.FabricPolicy) -> Iterator[Finding]:
    for name in document.fabrics:
        if name in _RESERVED:
            yield Finding(
                ("fabrics", name),
                f"{findings.quote(name)} is a reserved value of the label {names.FABRIC}; give the fabric another name",
            )


def _check_primary_interface(document: model.FabricPolicy) -> Iterator[Finding]:
    if document.primary_interface == "lo":
        message = '"lo" is the loopback interface; set the interface of the cluster network, such as eth0'
        yield Finding(("primaryInterface",), message)


def _check_interfaces(document: model.FabricPolicy) -> Iterator[Finding]:
    """Check that a rail's interface name is unique among the pod's interfaces, other rails and Multus's netN names."""
    for name, fabric in document.fabrics.items():
        automatic = {**_list_cluster_wide_names(document), **_build_automatic_names(document, fabric)}
        taken = {
            document.primary_interface: "the primaryInterface",
            "lo": "the loopback interface",
            "eth0": "the pod's cluster network",
        }
        depends_on = (("primaryInterface",), ("clusterWideNetworks",), ("fabrics", name, "rails", "*"))
        for index, rail in enumerate(fabric.rails):
            if rail.interface is None:
                continue
            name_in_message = findings.quote(rail.interface)
            owner = taken.get(rail.interface) or (rail.network and automatic.get(rail.interface))
            if owner:
                message = f"{name_in_message} is already the name of {owner}; choose another name or remove the key"
                yield Finding(("fabrics", name, "rails", index, "interface"), message, depends_on)
            taken.setdefault(rail.interface, f"rail {findings.quote(rail.name)}'s interface")


def _check_automatic_names(document: model.FabricPolicy) -> Iterator[Finding]:
    """Check that Multus gives no rail the name of the primary interface: every pod would be rejected."""
    depends_on = (("clusterWideNetworks",), ("fabrics", "*", "rails"), ("fabrics", "*", "rails", "*"))
    for name, fabric in document.fabrics.items():
        owner = _build_automatic_names(document, fabric).get(document.primary_interface)
        if owner:
            message = (
                f"{findings.quote(document.primary_interface)} is already the name of {owner} in fabric {name}; name "
                "the interface of the cluster network, such as eth0, or set `interface` of the rail"
            )
            yield Finding(("primaryInterface",), message, depends_on)


def _list_cluster_wide_names(document: model.FabricPolicy) -> dict[str, str]:
    """Return the owners of the netN names of the networks that Multus attaches to every pod."""
    return {f"net{number}": "one of the clusterWideNetworks" for number in range(1, document.cluster_wide_networks + 1)}


def _build_automatic_names(document: model.FabricPolicy, fabric: model.Fabric) -> dict[str, str]:
    """Return the owners of the netN names that Multus gives to rails without an interface name.

    N is the position among all networks of the pod, from 1.
    """
    attached = [rail for rail in fabric.rails if rail.network is not None]
    return {
        f"net{document.cluster_wide_networks + position}": f"rail {findings.quote(rail.name)}'s automatic interface"
        for position, rail in enumerate(attached, start=1)
        if rail.interface is None
    }


def _check_accelerators(document: model.FabricPolicy) -> Iterator[Finding]:
    for index, resource in enumerate(document.accelerators):
        yield from findings.check_extended_resource(("accelerators", index), resource)
    for index in findings.find_repeated(document.accelerators):
        resource = findings.quote(document.accelerators[index])
        yield Finding(("accelerators", index), f"{resource} is listed twice, and would be counted twice; keep one")


def _check_shape_names(document: model.FabricPolicy) -> Iterator[Finding]:
    for index in findings.find_repeated(shape.name for shape in document.node_shapes):
        name = findings.quote(document.node_shapes[index].name)
        message = f"{name} is the name of an earlier shape; shape names must be unique"
        yield Finding(("nodeShapes", index, "name"), message)


def _check_shape_rails(document: model.FabricPolicy) -> Iterator[Finding]:
    rail_names = dict.fromkeys(rail.name for fabric in document.fabrics.values() for rail in fabric.rails)
    choice = findings.join_names(rail_names)
    for index, shape in enumerate(document.node_shapes):
        for path, name in _list_shape_rails(shape):
            if name not in rail_names:
                message = f"{findings.quote(name)} is not a rail of any fabric; the rails are: {choice}"
                yield Finding(("nodeShapes", index, *path), message, (_RAIL_NAMES,))


def _list_shape_rails(shape: model.NodeShape) -> Iterator[tuple[findings.Path, str]]:
    for name in shape.devices:
        yield ("devices", name), name
    for name in shape.accelerators_of_rail:
        yield ("acceleratorsOfRail", name), name
    for index, numa in enumerate(shape.numa):
        for position, name in enumerate(numa.rails):
            yield ("numa", index, "rails", position), name


def _check_numa_nodes(shape: model.NodeShape) -> Iterator[Finding]:
    for index in findings.find_repeated(numa.node for numa in shape.numa):
        message = f"NUMA node {shape.numa[index].node} has two entries; merge them"
        yield Finding(("numa", index, "node"), message)
    yield from _check_unique_numa_node(shape, "gpus", "GPU", lambda numa: numa.gpus)
    yield from _check_unique_numa_node(shape, "rails", "rail", lambda numa: numa.rails)


def _check_unique_numa_node(
    shape: model.NodeShape, key: str, noun: str, list_items: Callable[[model.NumaNode], Sequence[str | int]]
) -> Iterator[Finding]:
    numa_node_of_item: dict[str | int, int] = {}
    for index, numa in enumerate(shape.numa):
        for position, item in enumerate(list_items(numa)):
            if item in numa_node_of_item:
                yield Finding(
                    ("numa", index, key, position),
                    f"{noun} {findings.quote(item)} is already on NUMA node {numa_node_of_item[item]}; "
                    f"list each {noun} under one NUMA node",
                    (("nodeShapes", "*", "numa", "*", "node"),),
                )
            numa_node_of_item.setdefault(item, numa.node)


_RULES: tuple[Callable[[model.FabricPolicy], Iterator[Finding]], ...] = (
    _check_default_fabric,
    _check_fabric_names,
    _check_primary_interface,
    _check_interfaces,
    _check_automatic_names,
    _check_accelerators,
    _check_shape_names,
    _check_shape_rails,
)
