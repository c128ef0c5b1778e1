"""Relations inside a policy document that no schema of single keys can state.

Owns the semantic rules of CONTRACT section 2 and rulings 6 to 8. Refuses to know YAML, lines and the
cluster: it reads an already typed document and names every finding by its path.
"""

import dataclasses
import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from fabric import names, quantity
from fabric.policy import model, presets

Path = tuple[str | int, ...]

_RAIL_NAMES: Path = ("fabrics", "*", "rails", "*", "name")
_EXPRESSION_OPERATORS_WITH_VALUES = ("In", "NotIn")
_RESERVED = (names.FABRIC_DEFAULT, names.FABRIC_NONE)  # label values with a meaning of their own


@dataclasses.dataclass(frozen=True)
class Finding:
    """One violated rule: where, a sentence with the fix, and which other parts it was judged by.

    In `rests_on`, "*" stands for any one key or index; a reader that had to replace such a part because
    it was unreadable drops the finding, which would only repeat the real error.
    """

    path: Path
    message: str
    rests_on: tuple[Path, ...] = ()


def check(document: model.FabricPolicy) -> tuple[Finding, ...]:
    """Every violated rule of the document, in the order of the rules; empty when it is acceptable."""
    found: list[Finding] = []
    for rule in _DOCUMENT_RULES:
        found.extend(rule(document))
    for name, fabric in document.fabrics.items():
        for fabric_rule in _FABRIC_RULES:
            found.extend(
                dataclasses.replace(finding, path=("fabrics", name, *finding.path)) for finding in fabric_rule(fabric)
            )
    for index, shape in enumerate(document.node_shapes):
        found.extend(
            dataclasses.replace(finding, path=("nodeShapes", index, *finding.path)) for finding in _numa_overlaps(shape)
        )
    return tuple(found)


# --- rules over the whole document --------------------------------------------------------------------
def _default_fabric(document: model.FabricPolicy) -> Iterator[Finding]:
    wanted = document.default_fabric
    if wanted is not None and wanted not in document.fabrics:
        yield Finding(
            ("defaultFabric",),
            f"{_quoted(wanted)} is not a fabric of this policy; name one of: {_list(document.fabrics)}",
            (("fabrics",),),
        )


def _fabric_names(document: model.FabricPolicy) -> Iterator[Finding]:
    for name in document.fabrics:
        if name in _RESERVED:
            yield Finding(
                ("fabrics", name),
                f"{_quoted(name)} has a meaning of its own as a value of the label {names.FABRIC}; "
                "give the fabric another name",
            )


def _interfaces(document: model.FabricPolicy) -> Iterator[Finding]:
    """Explicit interface names against the pod's own, against each other and against Multus's netN."""
    primary = document.primary_interface
    if primary == "lo":
        yield Finding(("primaryInterface",), '"lo" is the loopback interface; name the cluster network\'s, eth0')
    for fabric_name, fabric in document.fabrics.items():
        taken: dict[str, str] = {"lo": "the loopback interface", "eth0": "the pod's cluster network"}
        taken[primary] = "the primaryInterface"
        automatic = _automatic_interfaces(document, fabric)
        for index, rail in enumerate(fabric.rails):
            if rail.interface is None:
                continue
            owner = taken.get(rail.interface) or automatic.get(rail.interface)
            if owner is not None:
                yield Finding(
                    ("fabrics", fabric_name, "rails", index, "interface"),
                    f"{_quoted(rail.interface)} is already the name of {owner}; choose another or leave it out",
                    (("primaryInterface",), ("clusterWideNetworks",), ("fabrics", fabric_name, "rails", "*")),
                )
            taken[rail.interface] = f"rail {_quoted(rail.name)}'s interface"


def _automatic_interfaces(document: model.FabricPolicy, fabric: model.Fabric) -> dict[str, str]:
    """The netN names Multus gives rails without one, by position (multus pkg/k8sclient, 1-based)."""
    attached = [rail for rail in fabric.rails if rail.network is not None]
    return {
        f"net{document.cluster_wide_networks + position}": f"rail {_quoted(rail.name)}'s automatic interface"
        for position, rail in enumerate(attached, start=1)
        if rail.interface is None
    }


def _accelerators(document: model.FabricPolicy) -> Iterator[Finding]:
    for index, resource in enumerate(document.accelerators):
        yield from _extended_resource(("accelerators", index), resource)


def _shape_names(document: model.FabricPolicy) -> Iterator[Finding]:
    for index in _repeated([shape.name for shape in document.node_shapes]):
        name = document.node_shapes[index].name
        yield Finding(
            ("nodeShapes", index, "name"),
            f"{_quoted(name)} already names an earlier shape; shape names must be unique",
        )


def _shape_rails(document: model.FabricPolicy) -> Iterator[Finding]:
    known = dict.fromkeys(rail.name for fabric in document.fabrics.values() for rail in fabric.rails)
    for index, shape in enumerate(document.node_shapes):
        mentioned: list[tuple[Path, str]] = [(("devices", name), name) for name in shape.devices]
        mentioned += [
            (("numa", at, "rails", position), name)
            for at, numa in enumerate(shape.numa)
            for position, name in enumerate(numa.rails)
        ]
        for path, name in mentioned:
            if name not in known:
                yield Finding(
                    ("nodeShapes", index, *path),
                    f"{_quoted(name)} is not a rail of any fabric; the rails are: {_list(known)}",
                    (_RAIL_NAMES,),
                )


# --- rules over one fabric; paths are relative to it --------------------------------------------------
def _selector(fabric: model.Fabric) -> Iterator[Finding]:
    for index, expression in enumerate(fabric.namespaces.match_expressions):
        path: Path = ("namespaces", "matchExpressions", index, "values")
        rests: tuple[Path, ...] = (("fabrics", "*", "namespaces", "matchExpressions", index, "operator"),)
        if expression.operator in _EXPRESSION_OPERATORS_WITH_VALUES:
            if not expression.values:
                yield Finding(path, f"operator {expression.operator} needs at least one value", rests)
        elif expression.values:
            yield Finding(path, f"operator {expression.operator} takes no values; remove them", rests)


def _rails(fabric: model.Fabric) -> Iterator[Finding]:
    if not fabric.rails and fabric.transport is not model.Transport.TCP:
        yield Finding(
            ("rails",),
            f"is missing: a fabric with transport {fabric.transport} needs at least one rail, "
            "such as [{name: rail0}]; only tcp may have none",
            (("fabrics", "*", "transport"),),
        )
    if fabric.transport is model.Transport.PVRDMA and len(fabric.rails) > 1:
        yield Finding(
            ("rails",),
            f"has {len(fabric.rails)} rails, but PVRDMA gives a virtual machine one device: keep one rail",
        )
    for index in _repeated([rail.name for rail in fabric.rails]):
        yield Finding(
            ("rails", index, "name"),
            f"{_quoted(fabric.rails[index].name)} already names an earlier rail; rail names must be unique",
        )


def _rail_values(fabric: model.Fabric) -> Iterator[Finding]:
    for index, rail in enumerate(fabric.rails):
        if rail.name.isdigit():
            yield Finding(
                ("rails", index, "name"),
                f"{_quoted(rail.name)} would read as a count in the annotation {names.RAILS}; "
                f"use a name such as rail{rail.name}",
            )
        if rail.resource is not None:
            yield from _extended_resource(("rails", index, "resource"), rail.resource)


def _proportional(fabric: model.Fabric) -> Iterator[Finding]:
    if fabric.rails_per_pod == "proportional" and fabric.gpus_per_node is None:
        yield Finding(
            ("gpusPerNode",),
            "is missing: railsPerPod proportional needs the number of GPUs of a node, such as 8",
        )


def _annotations(fabric: model.Fabric) -> Iterator[Finding]:
    for key in fabric.annotations:
        if key == names.NETWORKS:
            yield Finding(("annotations", key), "is written from the rails; set their `network` instead")
        elif key.startswith(f"{names.DOMAIN}/"):
            yield Finding(("annotations", key), f"keys of {names.DOMAIN} are railwright's own; remove it")


def _shared_memory(fabric: model.Fabric) -> Iterator[Finding]:
    written = fabric.mounts.shared_memory
    if written is None:
        return
    try:
        size = quantity.parse(written)
    except quantity.InvalidQuantityError:
        size = quantity.parse("0")
    if size <= 0 or size.denominator != 1:
        yield Finding(
            ("mounts", "sharedMemory"),
            f"{_quoted(written)} is not a positive number of bytes; write a quantity such as 64Gi",
        )


def _address_range(fabric: model.Fabric) -> Iterator[Finding]:
    written, family = fabric.nccl.address_range, fabric.nccl.address_family
    if written is None:
        return
    path: Path = ("nccl", "addressRange")
    try:
        version = ipaddress.ip_network(written, strict=False).version if "/" in written else None
    except ValueError:
        version = None
    if version is None or "%" in written or not written.rpartition("/")[2].isdigit():
        example = "fd00::/8" if family == "AF_INET6" else "192.168.0.0/16"
        yield Finding(path, f"{_quoted(written)} is not an address prefix; write one such as {example}")
    elif version != (6 if family == "AF_INET6" else 4):
        other = "AF_INET" if version == 4 else "AF_INET6"
        yield Finding(
            path,
            f"{_quoted(written)} is not of the family {family or 'AF_INET (the default)'}, so NCCL would match "
            f"nothing; set addressFamily: {other} or change the range",
            (("fabrics", "*", "nccl", "addressFamily"),),
        )


def _placement(fabric: model.Fabric) -> Iterator[Finding]:
    placement = fabric.placement
    for index in _repeated(placement.domains):
        yield Finding(
            ("placement", "domains", index),
            f"{_quoted(placement.domains[index])} is listed twice; each domain label counts once",
        )
    levels = presets.domains(placement)
    known = bool(placement.domains) or placement.preset != "volcano"  # HyperNode depth is known to the cluster
    if known and len(placement.oversubscription) > len(levels):
        yield Finding(
            ("placement", "oversubscription"),
            f"has {len(placement.oversubscription)} values for {len(levels)} domains; "
            "give at most one for each domain, closest first",
            (("fabrics", "*", "placement", "domains"), ("fabrics", "*", "placement", "preset")),
        )
    weights = placement.weights
    if not (weights.locality or weights.rails or weights.numa or weights.packing):
        yield Finding(("placement", "weights"), "are all 0, so that no node is better than another; raise at least one")


# --- rules over one shape; paths are relative to it ---------------------------------------------------
def _numa_overlaps(shape: model.NodeShape) -> Iterator[Finding]:
    for index in _repeated([numa.node for numa in shape.numa]):
        yield Finding(
            ("numa", index, "node"),
            f"NUMA node {shape.numa[index].node} is described twice; merge the two entries",
        )
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
                    f"{noun} {item} is already on NUMA node {home[item]}; a {noun} hangs off one NUMA node",
                    (("nodeShapes", "*", "numa", "*", "node"),),
                )
            home.setdefault(item, numa.node)


# --- small words --------------------------------------------------------------------------------------
def _extended_resource(path: Path, resource: str) -> Iterator[Finding]:
    # apimachinery's IsExtendedResourceName: kubernetes.io and requests.* are reserved
    domain = resource.partition("/")[0]
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or resource.startswith("requests."):
        yield Finding(
            path,
            f"{_quoted(resource)} is reserved by Kubernetes; name the resource of a device plugin, "
            "such as nvidia.com/mlx5_0",
        )


def _repeated(values: Iterable[str | int]) -> Iterator[int]:
    """Indexes of the values that have occurred before."""
    seen: Counter[str | int] = Counter()
    for index, value in enumerate(values):
        if seen[value]:
            yield index
        seen[value] += 1


def _quoted(value: object) -> str:
    return f'"{value}"'


def _list(values: Iterable[str]) -> str:
    return ", ".join(values) or "(none)"


_DOCUMENT_RULES: tuple[Callable[[model.FabricPolicy], Iterator[Finding]], ...] = (
    _default_fabric,
    _fabric_names,
    _interfaces,
    _accelerators,
    _shape_names,
    _shape_rails,
)
_FABRIC_RULES: tuple[Callable[[model.Fabric], Iterator[Finding]], ...] = (
    _selector,
    _rails,
    _rail_values,
    _proportional,
    _annotations,
    _shared_memory,
    _address_range,
    _placement,
)
