"""Checks relations between keys of a policy document, which the schema of single keys cannot express.

A rule is a function and its row in one of the lists at the end: rules about the document, about one fabric, and about
the claims of one. Paths of findings about a fabric are relative to it until `check` completes them. The input is a
typed document (docs/interface.md 2).
"""

import dataclasses
import ipaddress
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import names, quantity, text, topology, views
from railwright.fabric.claims import drivers, selectors
from railwright.fabric.policy import claimed_rails, model, presets

Path = tuple[str | int, ...]
Shapes = Sequence[model.NodeShape]

_MAX_VALUE_LENGTH = 80  # characters of a value in a message: enough to find it, too few to flood a log
_MAX_NAMES = 20  # names in a list, for the same reason

_RAIL_NAMES: Path = ("fabrics", "*", "rails", "*", "name")
_DRIVER: Path = ("fabrics", "*", "claims", "driver")
_RESERVED = (names.FABRIC_DEFAULT, names.FABRIC_NONE)  # label values that are not names of fabrics
_OPERATORS_WITH_VALUES = ("In", "NotIn")
_PARAMETERS: Path = ("claims", "parameters")
# keys that would be equal for all rails of a pod, and that railwright writes for each
_KEYS_OF_ONE_RAIL = {
    drivers.Form.NETWORK_CONFIG: ("name", "addresses", "hardwareAddr"),
    drivers.Form.VF_CONFIG: ("apiVersion", "kind", "ifName", "netAttachDefName", "netAttachDefNamespace"),
}
_RAIL: Path = ("fabrics", "*", "rails", "*")
_HOST_DNS = "ClusterFirstWithHostNet"
_HUGE_PAGES = "hugepages-"
_SIDECAR: Path = ("fabrics", "*", "sidecars", "*", "startupProbe")
_LIBRARY_PATH = "LD_LIBRARY_PATH"
_SHAPES: Path = ("nodeShapes",)
_KEYS = "deviceName, pciAddress, value or expression"
_LEVELS: tuple[Path, ...] = (("fabrics", "*", "placement", "domains"), ("fabrics", "*", "placement", "preset"))
_UNKNOWN_LEVEL = "is not a key of domains or of preset"


@dataclasses.dataclass(frozen=True)
class Finding:
    """A violated rule: the path, a message with the fix, and the other paths that the rule reads.

    In `rests_on`, "*" stands for any one key or index. If one of these paths holds a placeholder for an unreadable
    value, the finding is dropped, because it would only repeat the error about that value.
    """

    path: Path
    message: str
    rests_on: tuple[Path, ...] = ()


def check(document: model.PolicyDocument) -> Iterator[Finding]:
    """Yield a finding for each violated rule, in the order of the rules; none if the document is valid."""
    for rule in _DOCUMENT_RULES:
        yield from rule(document)
    for name, fabric in document.fabrics.items():
        for fabric_rule in _FABRIC_RULES:
            yield from _prefix_paths(("fabrics", name), fabric_rule(fabric))
        if fabric.claims is not None:
            for claim_rule in _CLAIM_RULES:
                relative = claim_rule(fabric, fabric.claims, document.node_shapes)
                yield from _prefix_paths(("fabrics", name), relative)


def _prefix_paths(prefix: Path, relative: Iterator[Finding]) -> Iterator[Finding]:
    for finding in relative:
        yield dataclasses.replace(finding, path=(*prefix, *finding.path))


# --- the document ----------------------------------------------------------------------------------------


def _check_default_fabric(document: model.PolicyDocument) -> Iterator[Finding]:
    name = document.default_fabric
    if name is not None and name not in document.fabrics:
        fabric_names = _join_names(document.fabrics)
        message = f"{_quote(name)} is not a fabric of this policy; name one of: {fabric_names}"
        yield Finding(("defaultFabric",), message, (("fabrics",),))


def _check_fabric_names(document: model.PolicyDocument) -> Iterator[Finding]:
    for name in document.fabrics:
        if name in _RESERVED:
            yield Finding(
                ("fabrics", name),
                f"{_quote(name)} is a reserved value of the label {names.FABRIC}; give the fabric another name",
            )


def _check_primary_interface(document: model.PolicyDocument) -> Iterator[Finding]:
    if document.primary_interface == "lo":
        message = '"lo" is the loopback interface; set the interface of the cluster network, such as eth0'
        yield Finding(("primaryInterface",), message)


def _check_interfaces(document: model.PolicyDocument) -> Iterator[Finding]:
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
            name_in_message = _quote(rail.interface)
            owner = taken.get(rail.interface) or (rail.network and automatic.get(rail.interface))
            if owner:
                message = f"{name_in_message} is already the name of {owner}; choose another name or remove the key"
                yield Finding(("fabrics", name, "rails", index, "interface"), message, depends_on)
            taken.setdefault(rail.interface, f"rail {_quote(rail.name)}'s interface")


def _check_automatic_names(document: model.PolicyDocument) -> Iterator[Finding]:
    """Check that Multus gives no rail the name of the primary interface: every pod would be rejected."""
    depends_on = (("clusterWideNetworks",), ("fabrics", "*", "rails"), ("fabrics", "*", "rails", "*"))
    for name, fabric in document.fabrics.items():
        owner = _build_automatic_names(document, fabric).get(document.primary_interface)
        if owner:
            message = (
                f"{_quote(document.primary_interface)} is already the name of {owner} in fabric {name}; name "
                "the interface of the cluster network, such as eth0, or set `interface` of the rail"
            )
            yield Finding(("primaryInterface",), message, depends_on)


def _list_cluster_wide_names(document: model.PolicyDocument) -> dict[str, str]:
    """Return the owners of the netN names of the networks that Multus attaches to every pod."""
    return {f"net{number}": "one of the clusterWideNetworks" for number in range(1, document.cluster_wide_networks + 1)}


def _build_automatic_names(document: model.PolicyDocument, fabric: model.Fabric) -> dict[str, str]:
    """Return the owners of the netN names that Multus gives to rails without an interface name.

    N is the position among all networks of the pod, from 1.
    """
    attached = [rail for rail in fabric.rails if rail.network is not None]
    return {
        f"net{document.cluster_wide_networks + position}": f"rail {_quote(rail.name)}'s automatic interface"
        for position, rail in enumerate(attached, start=1)
        if rail.interface is None
    }


def _check_accelerators(document: model.PolicyDocument) -> Iterator[Finding]:
    for index, resource in enumerate(document.accelerators):
        yield from _check_extended_resource(("accelerators", index), resource)
    for index in _find_repeated(document.accelerators):
        resource = _quote(document.accelerators[index])
        yield Finding(("accelerators", index), f"{resource} is listed twice, and would be counted twice; keep one")


def _check_shape_names(document: model.PolicyDocument) -> Iterator[Finding]:
    return _check_unique_names(("nodeShapes",), "shape", [shape.name for shape in document.node_shapes])


def _check_shape_rails(document: model.PolicyDocument) -> Iterator[Finding]:
    rail_names = dict.fromkeys(rail.name for fabric in document.fabrics.values() for rail in fabric.rails)
    choice = _join_names(rail_names)
    for index, shape in enumerate(document.node_shapes):
        for path, name in _list_shape_rails(shape):
            if name not in rail_names:
                message = f"{_quote(name)} is not a rail of any fabric; the rails are: {choice}"
                yield Finding(("nodeShapes", index, *path), message, (_RAIL_NAMES,))


def _list_shape_rails(shape: model.NodeShape) -> Iterator[tuple[Path, str]]:
    for name in shape.devices:
        yield ("devices", name), name
    for name in shape.accelerators_of_rail:
        yield ("acceleratorsOfRail", name), name
    for index, numa in enumerate(shape.numa):
        for position, name in enumerate(numa.rails):
            yield ("numa", index, "rails", position), name


def _check_numa_nodes(document: model.PolicyDocument) -> Iterator[Finding]:
    for index, shape in enumerate(document.node_shapes):
        yield from _prefix_paths(("nodeShapes", index), _check_shape_numa(shape))


def _check_shape_numa(shape: model.NodeShape) -> Iterator[Finding]:
    for index in _find_repeated(numa.node for numa in shape.numa):
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
                    f"{noun} {_quote(item)} is already on NUMA node {numa_node_of_item[item]}; "
                    f"list each {noun} under one NUMA node",
                    (("nodeShapes", "*", "numa", "*", "node"),),
                )
            numa_node_of_item.setdefault(item, numa.node)


# --- one fabric ------------------------------------------------------------------------------------------


def _check_selector(fabric: model.Fabric) -> Iterator[Finding]:
    for index, expression in enumerate(fabric.namespaces.match_expressions):
        path: Path = ("namespaces", "matchExpressions", index, "values")
        depends_on: tuple[Path, ...] = (("fabrics", "*", "namespaces", "matchExpressions", index, "operator"),)
        if expression.operator in _OPERATORS_WITH_VALUES:
            if not expression.values:
                yield Finding(path, f"operator {expression.operator} needs at least one value", depends_on)
        elif expression.values:
            yield Finding(path, f"operator {expression.operator} takes no values; remove them", depends_on)


def _check_rails(fabric: model.Fabric) -> Iterator[Finding]:
    if not fabric.rails and fabric.transport is not model.Transport.TCP:
        yield Finding(
            ("rails",),
            f"is missing: a fabric with transport {fabric.transport} needs at least one rail, "
            "such as [{name: rail0}]; only tcp needs none",
            (("fabrics", "*", "transport"),),
        )
    if fabric.transport is model.Transport.PVRDMA and len(fabric.rails) > 1:
        yield Finding(
            ("rails",),
            f"has {len(fabric.rails)} rails, but a virtual machine has only one PVRDMA device: keep one rail",
        )
    yield from _check_unique_names(("rails",), "rail", [rail.name for rail in fabric.rails])


def _check_rail_values(fabric: model.Fabric) -> Iterator[Finding]:
    for index, rail in enumerate(fabric.rails):
        if rail.name.isdigit():
            yield Finding(
                ("rails", index, "name"),
                f"{_quote(rail.name)} would be read as a count in the annotation {names.RAILS}; "
                f"use a name such as rail{rail.name}",
            )
        if rail.resource is not None:
            yield from _check_extended_resource(("rails", index, "resource"), rail.resource)


def _check_gpus_per_node(fabric: model.Fabric) -> Iterator[Finding]:
    needs = {"railsPerPod proportional": fabric.rails_per_pod == "proportional", "wholeNode": fabric.whole_node}
    for key, is_set in needs.items():
        if is_set and fabric.gpus_per_node is None:
            yield Finding(("gpusPerNode",), f"is missing: {key} needs the number of GPUs of a node, such as 8")


def _check_annotations(fabric: model.Fabric) -> Iterator[Finding]:
    for key in fabric.annotations:
        if key == names.NETWORKS:
            yield Finding(("annotations", key), "is generated from the rails; set their `network` instead")
        elif key.startswith(f"{names.DOMAIN}/"):
            yield Finding(("annotations", key), f"keys of {names.DOMAIN} are set by railwright; remove it")


def _check_shared_memory(fabric: model.Fabric) -> Iterator[Finding]:
    amount = fabric.mounts.shared_memory
    if amount is not None and _parse_bytes(amount) is None:
        yield Finding(
            ("mounts", "sharedMemory"),
            f"{_quote(amount)} is not a positive number of bytes; set a quantity such as 64Gi",
        )


def _check_pod_fields(fabric: model.Fabric) -> Iterator[Finding]:
    fields = fabric.pod
    for index, rail in enumerate(fabric.rails):
        if fields.host_network and rail.network is not None:
            message = (
                f"{_quote(rail.network)} would not be attached: Multus ignores pods on the host network; remove it, or "
                "pod.hostNetwork"
            )
            yield Finding(("rails", index, "network"), message, (("fabrics", "*", "pod", "hostNetwork"),))
    if fields.dns_policy == _HOST_DNS and not fields.host_network:
        message = f"{_HOST_DNS} is for pods on the host network; add hostNetwork: true, or remove the key"
        yield Finding(("pod", "dnsPolicy"), message, (("fabrics", "*", "pod", "hostNetwork"),))
    for index, toleration in enumerate(fields.tolerations):
        if toleration.operator == "Exists" and toleration.value is not None:
            message = "has no meaning with operator Exists; remove it, or set operator: Equal"
            rests_on: tuple[Path, ...] = (("fabrics", "*", "pod", "tolerations", index, "operator"),)
            yield Finding(("pod", "tolerations", index, "value"), message, rests_on)


def _check_network_annotation(fabric: model.Fabric) -> Iterator[Finding]:
    other = fabric.network_annotation
    if other is None:
        return
    path: Path = ("networkAnnotation", "key")
    if other.key in (names.NETWORKS, names.DEFAULT_NETWORK) or other.key.startswith(f"{names.DOMAIN}/"):
        yield Finding(path, f"{_quote(other.key)} is not for other systems; set `network` of the rails for Multus")
    if other.key in fabric.annotations:
        yield Finding(("annotations", other.key), "is generated by networkAnnotation; remove it")
    if fabric.pod.host_network:
        message = "has no effect with pod.hostNetwork: such pods get no networks; remove one of the two"
        yield Finding(("networkAnnotation",), message, (("fabrics", "*", "pod", "hostNetwork"),))
    needs_interface = "{interface}" in json.dumps(other.item)
    for index, rail in enumerate(fabric.rails):
        if rail.network is not None:
            message = f"{_quote(rail.network)} would be attached by Multus, and again by networkAnnotation; remove it"
            yield Finding(("rails", index, "network"), message, (("fabrics", "*", "networkAnnotation"),))
        if needs_interface and rail.interface is None:
            message = f"is missing: `item` of networkAnnotation names the interface of rail {_quote(rail.name)}"
            yield Finding(("rails", index, "interface"), message, (("fabrics", "*", "networkAnnotation"),))


def _check_plugin(fabric: model.Fabric) -> Iterator[Finding]:
    nccl = fabric.nccl
    is_plugin = fabric.transport is model.Transport.PLUGIN
    is_required = is_plugin or (nccl.forbid_tcp_fallback and nccl.plugin.library not in (None, "none"))
    if nccl.plugin.network is None and is_required:
        message = "is missing: name the network of the plugin as NCCL_NET selects it, such as gIB"
        yield Finding(("nccl", "plugin", "network"), message, (("fabrics", "*", "transport"),))
    if fabric.transport is model.Transport.TCP and nccl.plugin != model.NcclPlugin():
        message = "has no effect: transport tcp keeps plugins out; remove it"
        yield Finding(("nccl", "plugin"), message, (("fabrics", "*", "transport"),))
    for name in fabric.env:
        if nccl.is_of_vendor(name):
            message = "is one of nccl.vendorVariables, which the vendor sets; remove it here or there"
            yield Finding(("env", name), message, (("fabrics", "*", "nccl", "vendorVariables"),))
    if fabric.library_path is not None and _LIBRARY_PATH in fabric.env:
        yield Finding(("env", _LIBRARY_PATH), "is extended by libraryPath; remove it, or libraryPath")


def _check_sidecars(fabric: model.Fabric) -> Iterator[Finding]:
    yield from _check_unique_names(("sidecars",), "sidecar", [sidecar.name for sidecar in fabric.sidecars])
    for index, sidecar in enumerate(fabric.sidecars):
        path: Path = ("sidecars", index)
        if sidecar.name == names.PREFLIGHT_CONTAINER:
            yield Finding((*path, "name"), f"{_quote(sidecar.name)} is railwright's own container; choose another name")
        paths = [views.clean_path(mount.mount_path or mount.path) for mount in sidecar.host_paths]
        for position in _find_repeated(paths):
            message = f"{_quote(paths[position])} is mounted twice; choose another path"
            yield Finding((*path, "hostPaths", position, "mountPath"), message)
        probe = sidecar.startup_probe
        if probe is not None and (probe.exec_ is None) == (probe.tcp_socket is None):
            yield Finding((*path, "startupProbe"), "needs exactly one of exec and tcpSocket", ((*_SIDECAR, "*"),))


def _check_device_scope(fabric: model.Fabric) -> Iterator[Finding]:
    if fabric.device_scope == "pod" and fabric.claims is not None:
        message = "pod has no effect on claims, in which each rail is requested; remove it"
        yield Finding(("deviceScope",), message, (("fabrics", "*", "claims"),))


def _check_primary_of_fabric(fabric: model.Fabric) -> Iterator[Finding]:
    if fabric.primary_interface == "lo":
        yield Finding(("primaryInterface",), '"lo" is the loopback interface; set that of NCCL\'s bootstrap')


def _check_resources(document: model.PolicyDocument) -> Iterator[Finding]:
    for name, fabric in document.fabrics.items():
        of_rails = {rail.resource: rail.name for rail in fabric.rails}
        for resource, amount in fabric.resources.items():
            path: Path = ("fabrics", name, "resources", resource)
            if resource in document.accelerators:
                message = "is an accelerator, of which each container requests its own number; remove it"
                yield Finding(path, message, (("accelerators",),))
            elif resource in of_rails:
                message = (
                    f"is the resource of rail {_quote(of_rails[resource])}, whose devices are requested; remove it"
                )
                yield Finding(path, message, (("fabrics", name, "rails", "*"),))
            yield from _check_amount(path, resource, amount)


def _check_amount(path: Path, resource: str, amount: str | int) -> Iterator[Finding]:
    size = _parse_bytes(amount)
    if not resource.startswith(_HUGE_PAGES):
        yield from _check_extended_resource(path, resource)
        if size is None:
            yield Finding(path, f"{_quote(amount)} is not a positive whole number; set one, such as 1")
    elif size is None or size % quantity.parse(resource.removeprefix(_HUGE_PAGES)):
        message = f"{_quote(amount)} is not a positive multiple of the page size; set one, such as 1Gi"
        yield Finding(path, message)


def _check_mount_paths(fabric: model.Fabric) -> Iterator[Finding]:
    """Check that each path in the container is mounted once, and that nccl.conf is not both a ConfigMap and written."""
    mounts = fabric.mounts
    taken = {"/": "the image"}
    if mounts.shared_memory is not None:
        taken[names.DEV_SHM] = "sharedMemory"
    if mounts.dev_infiniband:
        taken[names.DEV_INFINIBAND] = "devInfiniband"
    if fabric.nccl.delivery != "env":
        taken[names.NCCL_CONF_PATH] = "nccl.delivery, which writes this file"
    paths: list[tuple[str, int, str, str]] = [
        *(
            ("hostPaths", index, "mountPath", mount.mount_path or mount.path)
            for index, mount in enumerate(mounts.host_paths)
        ),
        *(("configMaps", index, "mountPath", mount.mount_path) for index, mount in enumerate(mounts.config_maps)),
    ]
    for key, index, field, path in paths:
        if owner := taken.get(views.clean_path(path)):
            message = f"{_quote(path)} is already mounted by {owner}; choose another path, or remove one of the two"
            yield Finding(
                ("mounts", key, index, field), message, (("fabrics", "*", "mounts"), ("fabrics", "*", "nccl"))
            )
        taken.setdefault(views.clean_path(path), f"{key}[{index}]")


def _parse_bytes(amount: str | int) -> int | None:
    """Return a positive whole amount; None for any other value."""
    try:
        size = quantity.parse(amount)
    except quantity.InvalidQuantityError:
        return None
    return int(size) if size > 0 and size.denominator == 1 else None


def _check_address_range(fabric: model.Fabric) -> Iterator[Finding]:
    prefix, family = fabric.nccl.address_range, fabric.nccl.address_family
    if prefix is None:
        return
    path: Path = ("nccl", "addressRange")
    try:
        version = ipaddress.ip_network(prefix, strict=False).version if "/" in prefix else None
    except ValueError:
        version = None
    if version is None or "%" in prefix or not prefix.rpartition("/")[2].isdigit():
        example = "fd00::/8" if family == "AF_INET6" else "192.168.0.0/16"
        message = f"{_quote(prefix)} is not an address prefix; set one, such as {example}"
        yield Finding(path, message)
    elif version != (6 if family == "AF_INET6" else 4):
        other = "AF_INET" if version == 4 else "AF_INET6"
        yield Finding(
            path,
            f"{_quote(prefix)} is not of the family {family or 'AF_INET (the default)'}, so no GID would "
            f"match; set addressFamily: {other} or change the range",
            (("fabrics", "*", "nccl", "addressFamily"),),
        )


def _check_placement(fabric: model.Fabric) -> Iterator[Finding]:
    placement = fabric.placement
    for index in _find_repeated(placement.domains):
        yield Finding(
            ("placement", "domains", index),
            f"{_quote(placement.domains[index])} is listed twice; each domain label counts once",
        )
    for index, key in enumerate(placement.domains):
        if topology.RAIL in key and not fabric.rails:
            message = (
                f"{_quote(key)} stands for a label of each rail, but the fabric has no rails; "
                "add rails or use another label"
            )
            yield Finding(("placement", "domains", index), message, (("fabrics", "*", "rails"),))
    levels = presets.list_domain_keys(placement)
    others = f"use one of: {_join_names(levels)}" if levels else ""
    if len(placement.oversubscription) > len(levels):
        counts = text.format_count(len(placement.oversubscription), "value"), text.format_count(len(levels), "domain")
        message = f"has {' for '.join(counts)}; give at most one for each domain, closest first"
        yield Finding(("placement", "oversubscription"), message, _LEVELS)
    if placement.uplinks is not None and not levels:
        message = "describes the uplinks of domains, but there are no domains; set domains or preset, or remove uplinks"
        yield Finding(("placement", "uplinks"), message, _LEVELS)
    known_levels = frozenset(levels)
    for index, key in enumerate(placement.gang_topology_levels):
        if key not in known_levels:
            message = f"{_quote(key)} {_UNKNOWN_LEVEL}; {others or 'set domains or preset, or remove it'}"
            yield Finding(("placement", "gangTopologyLevels", index), message, _LEVELS)
    weights = placement.weights
    if not (weights.locality or weights.rails or weights.numa or weights.packing):
        yield Finding(("placement", "weights"), "are all 0, so all nodes get the same score; set at least one above 0")


def _check_nvlink(fabric: model.Fabric) -> Iterator[Finding]:
    levels = presets.list_domain_keys(fabric.placement)
    if fabric.nvlink is not None and levels[:1] != (fabric.nvlink.domain,):
        yield Finding(
            ("nvlink", "domain"),
            f"{_quote(fabric.nvlink.domain)} is not the first of the domains, so gangs would cross NVLink domains; "
            f"write placement.domains with {fabric.nvlink.domain} first"
            + (f", then {_join_names(levels)}" if levels and fabric.nvlink.domain not in levels else ""),
            (("fabrics", "*", "placement", "domains"),),
        )


# --- rails that come as claims (docs/interface.md 2.6) ---------------------------------------------------


def _check_without_claims(fabric: model.Fabric) -> Iterator[Finding]:
    for index, rail in enumerate(fabric.rails):
        if rail.claim is not None and fabric.claims is None:
            message = "has no effect: the fabric has no claims; add `claims` with its deviceClass, or remove the key"
            yield Finding(("rails", index, "claim"), message, (("fabrics", "*", "claims"),))


def _check_transport(fabric: model.Fabric, _claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    if fabric.transport is model.Transport.TCP:
        message = "has no effect: transport tcp has no rails; remove claims, or set the transport of the rails"
        yield Finding(("claims",), message, (("fabrics", "*", "transport"),))


def _check_driver(_fabric: model.Fabric, claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    path: Path = ("claims", "driverName")
    if claims.driver == "other" and claims.driver_name is None:
        message = (
            "is missing: driver other needs the name in spec.driver of its ResourceSlices, such as nic.example.com"
        )
        yield Finding(path, message, (_DRIVER,))
    elif claims.driver != "other" and claims.driver_name is not None:
        known = claimed_rails.find_driver(claims).name
        message = f"is for driver other only: driver {claims.driver} is {known}; remove the key, or set driver: other"
        yield Finding(path, message, (_DRIVER,))


def _check_networks(fabric: model.Fabric, claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    form = claimed_rails.find_driver(claims).form
    for index, rail in enumerate(fabric.rails):
        path: Path = ("rails", index, "network")
        if form is drivers.Form.NETWORK_CONFIG and rail.network is not None:
            message = (
                f"{_quote(rail.network)} would attach a second device: dranet moves the interface into the pod "
                "without Multus; remove the key"
            )
            yield Finding(path, message, (_DRIVER,))
        elif form in (drivers.Form.VF_CONFIG, drivers.Form.NONE) and rail.network is None:
            message = (
                f"is missing: driver {claims.driver} attaches rail {_quote(rail.name)} by its "
                "NetworkAttachmentDefinition; name it, such as prod/rdma-lan2"
            )
            yield Finding(path, message, (_DRIVER,))


def _check_pairs(fabric: model.Fabric, claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    if claims.accelerators is None:
        if claims.pair_by not in ("pcieRoot", claimed_rails.NO_PAIRS):  # the default cannot be told from pcieRoot
            message = (
                "has no effect: only GPUs of the same claim can be paired with rails; "
                "add accelerators with the DeviceClass of the GPUs, or remove the key"
            )
            yield Finding(("claims", "pairBy"), message, (("fabrics", "*", "claims", "accelerators"),))
        return
    if claims.pair_by == claimed_rails.NO_PAIRS:
        return
    if fabric.gpus_per_node is None:
        message = (
            f"is missing: pairBy {claims.pair_by} needs the number of GPUs of a node, such as 8; "
            "without it, the GPUs of a rail are unknown"
        )
        yield Finding(("gpusPerNode",), message, (("fabrics", "*", "claims", "pairBy"),))
    if claims.pair_by == claimed_rails.NODE_SHAPE:
        yield from _check_shape_pairs(fabric, shapes)


def _check_shape_pairs(fabric: model.Fabric, shapes: Shapes) -> Iterator[Finding]:
    rail_names = [rail.name for rail in fabric.rails]
    if not any(shape.accelerators_of_rail.keys() & set(rail_names) for shape in shapes):
        message = (
            '"nodeShape" needs the GPUs beside each rail; add acceleratorsOfRail to nodeShapes, '
            'such as {rail0: ["0008:01:00.0"]}'
        )
        yield Finding(("claims", "pairBy"), message, (("nodeShapes",), ("fabrics", "*", "rails", "*", "name")))
    of_rail = {
        name: {address for shape in shapes for address in shape.accelerators_of_rail.get(name, ())}
        for name in rail_names
    }
    for shape in shapes:
        for name in rail_names:
            own = shape.accelerators_of_rail.get(name, ())
            others = {address for rail in rail_names for address in shape.accelerators_of_rail.get(rail, ())}
            if wrong := sorted((of_rail[name] & others) - set(own)):
                message = (
                    f"rail {_quote(name)} has the GPU {wrong[0]} on nodes of another shape, but on those of "
                    f"shape {_quote(shape.name)} the GPU belongs to another rail: one claim serves nodes of "
                    "all shapes; use a fabric for each shape"
                )
                yield Finding(("claims", "pairBy"), message, (("nodeShapes",),))
                return


def _check_size(fabric: model.Fabric, claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    """Check that a rail's devices fit into a claim, and those of a pair: constraints do not reach across claims."""
    gpus, rails = fabric.gpus_per_node, len(fabric.rails)
    if fabric.devices_per_rail > drivers.MAX_DEVICES:
        message = (
            f"{fabric.devices_per_rail} devices of a rail are one request, but a ResourceClaim has at most "
            f"{drivers.MAX_DEVICES} devices; lower it"
        )
        yield Finding(("devicesPerRail",), message, (("fabrics", "*", "claims"),))
        return
    if claims.accelerators is None or claims.pair_by == claimed_rails.NO_PAIRS or gpus is None or not rails:
        return
    groups = min(gpus, rails)
    devices = gpus // groups + -(-rails // groups) * fabric.devices_per_rail
    if devices > drivers.MAX_DEVICES:
        message = (
            f"{fabric.devices_per_rail} makes {devices} devices of each pair of GPUs and rails, but a ResourceClaim "
            f"has at most {drivers.MAX_DEVICES}; lower it, or set claims.pairBy: none"
        )
        yield Finding(("devicesPerRail",), message, (("fabrics", "*", "rails"), ("fabrics", "*", "gpusPerNode")))


def _check_parameters(_fabric: model.Fabric, claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    form = claimed_rails.find_driver(claims).form
    if form is drivers.Form.NONE and claims.parameters:
        message = (
            "has no effect: in the mode MULTUS, dra-driver-sriov reads no configuration; "
            "configure the rails' NetworkAttachmentDefinitions instead"
        )
        yield Finding(_PARAMETERS, message, (_DRIVER,))
    interface = claims.parameters.get("interface")
    nested = interface if form is drivers.Form.NETWORK_CONFIG and isinstance(interface, dict) else {}
    for key in _KEYS_OF_ONE_RAIL.get(form, ()):
        for path, keys in ((_PARAMETERS, claims.parameters), ((*_PARAMETERS, "interface"), nested)):
            if key in keys:
                message = "would be equal for all rails of a pod; railwright sets the interface's name of each rail"
                yield Finding((*path, key), f"{message}; remove the key", (_DRIVER,))
    if form is drivers.Form.NETWORK_CONFIG and "interface" in claims.parameters and not isinstance(interface, dict):
        yield Finding((*_PARAMETERS, "interface"), "is not a mapping; write its keys, such as {mtu: 9000}", (_DRIVER,))
    for path, number in _list_large_numbers(claims.parameters, _PARAMETERS):
        yield Finding(path, _describe_large_number(number), (_DRIVER,))
    size = len(json.dumps(claims.parameters).encode())
    if size > drivers.MAX_PARAMETERS:
        message = f"has {size} bytes, but the configuration of a claim has at most {drivers.MAX_PARAMETERS}; shorten it"
        yield Finding(_PARAMETERS, message)


def _list_large_numbers(value: Any, path: Path) -> Iterator[tuple[Path, int]]:
    """Yield the integers in a value that the API server cannot read, with their paths."""
    if isinstance(value, int) and not _fits_64_bits(value):
        yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _list_large_numbers(item, (*path, key))


# --- what identifies each of these rails -----------------------------------------------------------------


def _check_attribute(_fabric: model.Fabric, claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    if claims.rail_attribute in drivers.WITHDRAWN:
        yield Finding(("claims", "railAttribute"), _describe_withdrawn(claims.rail_attribute))


def _describe_withdrawn(attribute: str) -> str:
    return (
        f"{_quote(attribute)} is gone while a pod holds the device, because its interface is in the pod then; "
        "use dra.net/rdmaDevice or dra.net/pciAddress"
    )


def _check_identities(fabric: model.Fabric, claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    """Check that each rail is identified exactly once."""
    for index, rail in enumerate(fabric.rails):
        for finding in _check_identity(rail, claims, shapes):
            yield Finding(("rails", index, *finding.path), finding.message, (_DRIVER, *finding.rests_on))


def _check_identity(rail: model.Rail, claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    """Yield the findings about one rail. Paths are relative to it."""
    if rail.resource is not None:
        message = (
            f"{_quote(rail.resource)} is an extended resource, but the fabric's rails come as claims; "
            "remove it, or remove claims from the fabric"
        )
        yield Finding(("resource",), message, (("fabrics", "*", "claims"),))
    if rail.claim is None:
        yield from _check_identified(rail, claims, shapes)
        return
    keys = [key for key, value in msgspec.to_builtins(rail.claim).items() if value is not None]
    if len(keys) != 1:
        problem = f"identifies the rail {len(keys)} times, by {', '.join(keys)}" if keys else "identifies nothing"
        yield Finding(("claim",), f"{problem}; set exactly one of {_KEYS}", (_RAIL, (*_RAIL, "claim", "*")))
    elif rail.claim.device_name is not None:
        yield from _check_device_name(rail.claim.device_name, claims)
    elif rail.claim.expression is not None:
        yield from _check_expression(rail.claim.expression)
    elif rail.claim.value is not None:
        if isinstance(rail.claim.value, int) and not _fits_64_bits(rail.claim.value):
            yield Finding(("claim", "value"), _describe_large_number(rail.claim.value))
        yield from _check_has_attribute(rail, claims)


def _check_identified(rail: model.Rail, claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    driver = claimed_rails.find_driver(claims)
    if not driver.has_rdma_names:
        message = (
            f"is missing: {driver.rail_attribute}, which identifies rails of driver {claims.driver}, is not the name "
            "of an RDMA device; set its value, such as claim: {value: intel.com/rail0}"
        )
        yield Finding(("claim",), message, (_RAIL,))
    elif not claimed_rails.list_device_names(rail, claims, shapes):
        message = (
            f"is missing: nothing identifies the devices of rail {_quote(rail.name)}; set device, such as "
            f"mlx5_0, or claim with one of {_KEYS}"
        )
        yield Finding(("claim",), message, (_RAIL, _SHAPES))
    else:
        yield from _check_has_attribute(rail, claims)


def _check_has_attribute(rail: model.Rail, claims: model.Claims) -> Iterator[Finding]:
    if claims.rail_attribute is None and claimed_rails.find_driver(claims).rail_attribute is None:
        message = (
            f"the value that identifies rail {_quote(rail.name)} belongs to no attribute: set "
            "claims.railAttribute, such as example.com/rdmaDevice, or identify the rail by pciAddress or expression"
        )
        yield Finding(("claim",), message, (("fabrics", "*", "claims", "railAttribute"),))


def _check_device_name(name: str, claims: model.Claims) -> Iterator[Finding]:
    path: Path = ("claim", "deviceName")
    if not claimed_rails.find_driver(claims).has_pci_names:
        message = (
            f"{_quote(name)} cannot be selected: a ResourceClaim selects by attributes, and only names of "
            "dranet have one, the PCI address; set pciAddress, value or expression"
        )
        yield Finding(path, message)
    elif drivers.read_pci_address(name) is None:
        message = (
            f"{_quote(name)} has no PCI address, such as pci-0000-20-1b-0, and a ResourceClaim selects by "
            "attributes only; set value or expression"
        )
        yield Finding(path, message)


def _check_expression(expression: str) -> Iterator[Finding]:
    path: Path = ("claim", "expression")
    unguarded = selectors.list_unguarded(expression)
    for attribute in unguarded:
        domain, _, name = attribute.rpartition("/")
        message = (
            f"reads {attribute} without has(): devices may lack it, and pods are then not scheduled at all; "
            f'begin with has(device.attributes["{domain}"].{name}) &&'
        )
        yield Finding(path, message)
    for attribute in selectors.list_references(expression):
        if attribute in drivers.WITHDRAWN:
            yield Finding(path, _describe_withdrawn(attribute))


def _check_ambiguity(fabric: model.Fabric, claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    """Check that no device is selected by two rails."""
    rails_by_expression: dict[str, str] = {}
    rail_by_value: dict[tuple[str, object], model.Rail] = {}
    for index, rail in enumerate(fabric.rails):
        selector = claimed_rails.select_rail(rail, claims, shapes)
        if selector is None:
            continue
        other = rails_by_expression.setdefault(selector.expression, rail.name)
        if not selector.values and other != rail.name:
            message = f"is that of rail {_quote(other)}, so that each could get the other's device"
            yield Finding(("rails", index, "claim", "expression"), f"{message}; correct one", (_RAIL,))
        for value in selector.values:
            earlier = rail_by_value.setdefault((selector.attribute, value), rail)
            if earlier.name != rail.name:
                message = _describe_ambiguity(rail, earlier, value, shapes)
                yield Finding(("rails", index), message, (_RAIL, _DRIVER, _SHAPES))
                break


def _describe_ambiguity(rail: model.Rail, earlier: model.Rail, value: object, shapes: Shapes) -> str:
    pair = f"rails {_quote(earlier.name)} and {_quote(rail.name)}"
    places = [_find_place(either, value, shapes) for either in (earlier, rail)]
    if places[0] == places[1]:
        return f"{pair} are both identified by {_quote(value)}, so that each could get the other's device"
    return (
        f"{pair} are ambiguous: {_quote(value)} is the device of {_quote(earlier.name)} {places[0]} "
        f"and of {_quote(rail.name)} {places[1]}, and one claim serves nodes of all shapes; identify them by "
        "an attribute that is equal on all nodes, or use a fabric for each shape"
    )


def _find_place(rail: model.Rail, value: object, shapes: Shapes) -> str:
    of_shape: Mapping[str, str | None] = {shape.name: shape.devices.get(rail.name) for shape in shapes}
    shape = next((name for name, device in of_shape.items() if device == value), None)
    return "by its own key" if shape is None else f"on nodes of shape {_quote(shape)}"


# --- messages --------------------------------------------------------------------------------------------


def _check_extended_resource(path: Path, resource: str) -> Iterator[Finding]:
    """Yield a finding for a resource that is not extended (Kubernetes' IsExtendedResourceName).

    Resources in kubernetes.io and those that start with `requests.` are Kubernetes' own.
    """
    domain = resource.partition("/")[0]
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or resource.startswith("requests."):
        yield Finding(
            path,
            f"{_quote(resource)} is reserved by Kubernetes; name the resource of a device plugin, "
            "such as nvidia.com/mlx5_0",
        )


def _check_unique_names(path: Path, noun: str, item_names: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding for each item of the list at `path` that has the name of an earlier one."""
    for index in _find_repeated(item_names):
        message = f"{_quote(item_names[index])} is the name of an earlier {noun}; {noun} names must be unique"
        yield Finding((*path, index, "name"), message)


def _find_repeated(values: Iterable[str | int]) -> Iterator[int]:
    """Yield the index of each value that occurs earlier in `values`."""
    earlier: set[str | int] = set()
    for index, value in enumerate(values):
        if value in earlier:
            yield index
        earlier.add(value)


def _quote(value: object) -> str:
    """Return a value as JSON, truncated, for a message."""
    return text.abbreviate(json.dumps(value), _MAX_VALUE_LENGTH)


def _join_names(values: Iterable[str]) -> str:
    """Return the first names as a comma-separated list for a message."""
    names = [*itertools.islice(values, _MAX_NAMES + 1)]
    texts = [name if name.isascii() and name.isprintable() else _quote(name) for name in names[:_MAX_NAMES]]
    return ", ".join([*texts, "..."] if len(names) > _MAX_NAMES else texts) or "(none)"


def _fits_64_bits(number: int) -> bool:
    """True if the API server can read an integer: as a signed one of 64 bits."""
    return -(2**63) <= number < 2**63


def _describe_large_number(number: int) -> str:
    """Return the message about an integer that the API server cannot read."""
    return f"{number} needs more than 64 bits; write a smaller number, or quote it"


def _check_health(document: model.PolicyDocument) -> Iterator[Finding]:
    health = document.health
    if health.max_hold_seconds < health.hold_seconds:
        yield Finding(
            ("health", "maxHoldSeconds"),
            f"{health.max_hold_seconds} is less than holdSeconds {health.hold_seconds}; raise it, or lower holdSeconds",
            rests_on=(("health", "holdSeconds"),),
        )


# --- the rules -------------------------------------------------------------------------------------------

_DOCUMENT_RULES: tuple[Callable[[model.PolicyDocument], Iterator[Finding]], ...] = (
    _check_default_fabric,
    _check_fabric_names,
    _check_primary_interface,
    _check_interfaces,
    _check_automatic_names,
    _check_accelerators,
    _check_shape_names,
    _check_shape_rails,
    _check_numa_nodes,
    _check_health,
    _check_resources,
)
_FABRIC_RULES: tuple[Callable[[model.Fabric], Iterator[Finding]], ...] = (
    _check_selector,
    _check_rails,
    _check_rail_values,
    _check_gpus_per_node,
    _check_annotations,
    _check_shared_memory,
    _check_mount_paths,
    _check_pod_fields,
    _check_primary_of_fabric,
    _check_network_annotation,
    _check_plugin,
    _check_device_scope,
    _check_sidecars,
    _check_address_range,
    _check_placement,
    _check_nvlink,
    _check_without_claims,
)
_CLAIM_RULES: tuple[Callable[[model.Fabric, model.Claims, Shapes], Iterator[Finding]], ...] = (
    _check_transport,
    _check_driver,
    _check_networks,
    _check_pairs,
    _check_size,
    _check_parameters,
    _check_attribute,
    _check_identities,
    _check_ambiguity,
)
