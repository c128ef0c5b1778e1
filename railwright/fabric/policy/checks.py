"""Relations inside a policy document that no schema of single keys can state.

Owns the rules over the whole document and its node shapes (CONTRACT section 2, rulings 6 to 8); the rules
over one fabric are `fabric_checks`. Refuses to know YAML, lines and the cluster: it reads an already typed
document and names every finding by its path.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from railwright.fabric import names
from railwright.fabric.policy import fabric_checks, findings, model

Finding = findings.Finding

_RAIL_NAMES: findings.Path = ("fabrics", "*", "rails", "*", "name")
_RESERVED = (names.FABRIC_DEFAULT, names.FABRIC_NONE)  # label values with a meaning of their own


def check(document: model.FabricPolicy) -> tuple[Finding, ...]:
    """Every violated rule of the document, in the order of the rules; empty when it is acceptable."""
    found: list[Finding] = []
    for rule in _RULES:
        found.extend(rule(document))
    for name, fabric in document.fabrics.items():
        for fabric_rule in fabric_checks.RULES:
            found.extend(_below(("fabrics", name), fabric_rule(fabric)))
    for index, shape in enumerate(document.node_shapes):
        found.extend(_below(("nodeShapes", index), _numa_overlaps(shape)))
    return tuple(found)


def _below(place: findings.Path, found: Iterator[Finding]) -> Iterator[Finding]:
    for finding in found:
        yield dataclasses.replace(finding, path=(*place, *finding.path))


def _default_fabric(document: model.FabricPolicy) -> Iterator[Finding]:
    wanted = document.default_fabric
    if wanted is not None and wanted not in document.fabrics:
        known = findings.listed(document.fabrics)
        message = f"{findings.quoted(wanted)} is not a fabric of this policy; name one of: {known}"
        yield Finding(("defaultFabric",), message, (("fabrics",),))


def _fabric_names(document: model.FabricPolicy) -> Iterator[Finding]:
    for name in document.fabrics:
        if name in _RESERVED:
            yield Finding(
                ("fabrics", name),
                f"{findings.quoted(name)} has a meaning of its own as a value of the label {names.FABRIC}; "
                "give the fabric another name",
            )


def _primary_interface(document: model.FabricPolicy) -> Iterator[Finding]:
    if document.primary_interface == "lo":
        message = '"lo" is the loopback interface; name that of the cluster network, such as eth0'
        yield Finding(("primaryInterface",), message)


def _interfaces(document: model.FabricPolicy) -> Iterator[Finding]:
    """Explicit interface names against the pod's own, against each other and against Multus's netN."""
    for name, fabric in document.fabrics.items():
        automatic = {**_cluster_wide_interfaces(document), **_automatic_interfaces(document, fabric)}
        taken = {
            document.primary_interface: "the primaryInterface",
            "lo": "the loopback interface",
            "eth0": "the pod's cluster network",
        }
        rests = (("primaryInterface",), ("clusterWideNetworks",), ("fabrics", name, "rails", "*"))
        for index, rail in enumerate(fabric.rails):
            if rail.interface is None:
                continue
            written = findings.quoted(rail.interface)
            owner = taken.get(rail.interface) or (rail.network and automatic.get(rail.interface))
            if owner:
                message = f"{written} is already the name of {owner}; choose another or leave it out"
                yield Finding(("fabrics", name, "rails", index, "interface"), message, rests)
            taken.setdefault(rail.interface, f"rail {findings.quoted(rail.name)}'s interface")


def _primary_among_automatic(document: model.FabricPolicy) -> Iterator[Finding]:
    """The primary interface against the names that Multus gives: under such a policy every pod would be rejected."""
    rests = (("clusterWideNetworks",), ("fabrics", "*", "rails"), ("fabrics", "*", "rails", "*"))
    for name, fabric in document.fabrics.items():
        owner = _automatic_interfaces(document, fabric).get(document.primary_interface)
        if owner:
            message = (
                f"{findings.quoted(document.primary_interface)} is already the name of {owner} in fabric {name}; name "
                "the interface of the cluster network, such as eth0, or set `interface` of the rail"
            )
            yield Finding(("primaryInterface",), message, rests)


def _cluster_wide_interfaces(document: model.FabricPolicy) -> dict[str, str]:
    """The netN names of the networks that Multus attaches to every pod."""
    return {f"net{number}": "one of the clusterWideNetworks" for number in range(1, document.cluster_wide_networks + 1)}


def _automatic_interfaces(document: model.FabricPolicy, fabric: model.Fabric) -> dict[str, str]:
    """The netN names Multus gives rails without one: N is the position among the pod's networks, from 1."""
    attached = [rail for rail in fabric.rails if rail.network is not None]
    return {
        f"net{document.cluster_wide_networks + position}": f"rail {findings.quoted(rail.name)}'s automatic interface"
        for position, rail in enumerate(attached, start=1)
        if rail.interface is None
    }


def _accelerators(document: model.FabricPolicy) -> Iterator[Finding]:
    for index, resource in enumerate(document.accelerators):
        yield from findings.extended_resource(("accelerators", index), resource)
    for index in findings.repeated(document.accelerators):
        resource = findings.quoted(document.accelerators[index])
        yield Finding(("accelerators", index), f"{resource} is listed twice, and would be counted twice; keep one")


def _shape_names(document: model.FabricPolicy) -> Iterator[Finding]:
    for index in findings.repeated(shape.name for shape in document.node_shapes):
        name = findings.quoted(document.node_shapes[index].name)
        message = f"{name} already names an earlier shape; shape names must be unique"
        yield Finding(("nodeShapes", index, "name"), message)


def _shape_rails(document: model.FabricPolicy) -> Iterator[Finding]:
    known = dict.fromkeys(rail.name for fabric in document.fabrics.values() for rail in fabric.rails)
    choice = findings.listed(known)
    for index, shape in enumerate(document.node_shapes):
        for path, name in _mentioned_rails(shape):
            if name not in known:
                message = f"{findings.quoted(name)} is not a rail of any fabric; the rails are: {choice}"
                yield Finding(("nodeShapes", index, *path), message, (_RAIL_NAMES,))


def _mentioned_rails(shape: model.NodeShape) -> Iterator[tuple[findings.Path, str]]:
    for name in shape.devices:
        yield ("devices", name), name
    for at, numa in enumerate(shape.numa):
        for position, name in enumerate(numa.rails):
            yield ("numa", at, "rails", position), name


def _numa_overlaps(shape: model.NodeShape) -> Iterator[Finding]:
    for index in findings.repeated(numa.node for numa in shape.numa):
        message = f"NUMA node {shape.numa[index].node} is described twice; merge the two entries"
        yield Finding(("numa", index, "node"), message)
    yield from _shared_between(shape, "gpus", "GPU", lambda numa: numa.gpus)
    yield from _shared_between(shape, "rails", "rail", lambda numa: numa.rails)


def _shared_between(
    shape: model.NodeShape, key: str, noun: str, of: Callable[[model.NumaNode], Sequence[str | int]]
) -> Iterator[Finding]:
    home: dict[str | int, int] = {}
    for index, numa in enumerate(shape.numa):
        for position, item in enumerate(of(numa)):
            if item in home:
                yield Finding(
                    ("numa", index, key, position),
                    f"{noun} {findings.quoted(item)} is already on NUMA node {home[item]}; "
                    f"a {noun} hangs off one NUMA node",
                    (("nodeShapes", "*", "numa", "*", "node"),),
                )
            home.setdefault(item, numa.node)


_RULES: tuple[Callable[[model.FabricPolicy], Iterator[Finding]], ...] = (
    _default_fabric,
    _fabric_names,
    _primary_interface,
    _interfaces,
    _primary_among_automatic,
    _accelerators,
    _shape_names,
    _shape_rails,
)
