"""Checks rules about several keys of a policy document, which its JSON Schema cannot express (docs/interface.md 2).

Functions that get a fabric return paths relative to it. `find_violations` completes them.
"""

import ipaddress
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import names, quantity, text, views
from railwright.fabric.claims import objects
from railwright.fabric.policy import compiled, model

Path = tuple[str | int, ...]
Shapes = Sequence[model.NodeShape]
_Devices = list[tuple[Path, str | None]]  # device of each rail, with the path of its key

_MAX_VALUE_LENGTH = 80  # characters of a value in a message: enough to find it, too few to flood a log
_MAX_NAMES = 20  # names in a list, for the same reason

_HUGE_PAGES = "hugepages-"
_TRANSPORTS_WITH_ADDRESSES = frozenset({model.Transport.ROCE, model.Transport.ERDMA, model.Transport.PVRDMA})
_NCCL_KEYS = {  # of `nccl`: the transports on which each has an effect
    "gidIndex": _TRANSPORTS_WITH_ADDRESSES,
    "addressRange": _TRANSPORTS_WITH_ADDRESSES,
    "trafficClass": frozenset({model.Transport.ROCE}),
    "forbidTcpFallback": frozenset(model.Transport) - {model.Transport.TCP},
}
_LIBRARY_PATH, _NET_PLUGIN = "LD_LIBRARY_PATH", "NCCL_NET_PLUGIN"


class Finding(NamedTuple):
    """Violation of a rule: the path of the key, and a message with the fix."""

    path: Path
    message: str


def find_violations(document: model.PolicyDocument) -> Iterator[Finding]:
    """Yield a finding for each key that violates a rule; none if the document is valid."""
    yield from _check_accelerators_and_default(document)
    yield from _check_shapes(document)
    for name, fabric in document.fabrics.items():
        yield from _check_devices(name, fabric, document.node_shapes)
        for finding in _check_fabric(fabric, document):
            yield finding._replace(path=("fabrics", name, *finding.path))


def _check_fabric(fabric: model.Fabric, document: model.PolicyDocument) -> Iterator[Finding]:
    yield from _check_resources(fabric, document.accelerators)
    yield from _check_missing_keys(fabric)
    yield from _check_conflicting_keys(fabric)
    yield from _check_rails(fabric)
    yield from _check_interfaces(fabric)
    yield from _check_mounts(fabric)
    yield from _check_nccl_keys(fabric)
    yield from _check_quantities_and_prefixes(fabric)
    yield from _check_placement(fabric)
    if fabric.claims is not None:
        yield from _check_claims(fabric, fabric.claims, document.node_shapes)


# --- the document ----------------------------------------------------------------------------------------


def _check_accelerators_and_default(document: model.PolicyDocument) -> Iterator[Finding]:
    default, accelerators = document.default_fabric, document.accelerators
    if default is not None and default not in document.fabrics:
        fabrics = text.join_first(document.fabrics, _MAX_NAMES)
        yield Finding(("defaultFabric",), f"{_quote(default)} is not a fabric of this policy; name one of: {fabrics}")
    for resource in document.accelerator_units:
        if resource not in accelerators:
            listed = text.join_first(accelerators, _MAX_NAMES)
            message = f"is not one of `accelerators` ({listed}); add it there, or remove it"
            yield Finding(("acceleratorUnits", resource), message)
    for index in _find_repeated_values(accelerators):
        message = f"{_quote(accelerators[index])} is listed twice, and would be counted twice; keep one"
        yield Finding(("accelerators", index), message)


def _check_shapes(document: model.PolicyDocument) -> Iterator[Finding]:
    """Check node shapes: unique names, a `match` that no earlier shape covers, and known rails and GPUs listed once."""
    shapes = document.node_shapes
    yield from _check_unique_names(("nodeShapes",), "shape", [shape.name for shape in shapes])
    rails = dict.fromkeys(rail.name for fabric in document.fabrics.values() for rail in fabric.rails)
    for index, shape in enumerate(shapes):
        earlier = model.find_shape(shapes[:index], shape.match)
        if earlier is not None:
            message = (
                f"has no nodes: a node with all labels of shape {_quote(shape.name)} has the earlier shape "
                f"{_quote(earlier.name)}; put {_quote(shape.name)} before {_quote(earlier.name)}, or remove it"
            )
            yield Finding(("nodeShapes", index, "match"), message)
        named: list[tuple[Path, str]] = [(("devices", name), name) for name in shape.devices]
        for key, noun in (("gpus", "GPU"), ("rails", "rail")):
            items: list[tuple[Path, int | str]] = [
                (("numa", number, key, position), item)
                for number, numa in enumerate(shape.numa)
                for position, item in enumerate(getattr(numa, key))
            ]
            named += [(path, item) for path, item in items if isinstance(item, str)]
            for repeated in _find_repeated_values(item for _, item in items):
                path, item = items[repeated]
                message = f"{noun} {_quote(item)} is already on a NUMA node; list each {noun} under one NUMA node"
                yield Finding(("nodeShapes", index, *path), message)
        for path, name in named:
            if name not in rails:
                choice = text.join_first(rails, _MAX_NAMES) or "none"
                message = f"{_quote(name)} is not a rail of any fabric; the rails are: {choice}"
                yield Finding(("nodeShapes", index, *path), message)


def _check_unique_names(path: Path, noun: str, item_names: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding for each item of the list at `path` whose name an earlier item has. `noun` is for the message."""
    for index in _find_repeated_values(item_names):
        message = f"{_quote(item_names[index])} is the name of an earlier {noun}; {noun} names must be unique"
        yield Finding((*path, index, "name"), message)


def _find_repeated_values(values: Iterable[str | int]) -> Iterator[int]:
    """Yield the index of each value that occurs earlier in `values`."""
    earlier: set[str | int] = set()
    for index, value in enumerate(values):
        if value in earlier:
            yield index
        earlier.add(value)


def _quote(value: object) -> str:
    """Return a value as JSON, truncated to 80 characters, for a message."""
    return text.truncate(json.dumps(value), _MAX_VALUE_LENGTH)


# --- devices and resources of a fabric ----------------------------------------------------------------------


def _check_devices(fabric_name: str, fabric: model.Fabric, shapes: Shapes) -> Iterator[Finding]:
    """Check that two rails never have the same RDMA device, in `device` or in `devices` of one node shape."""
    if fabric.claims is not None:  # `_check_rail_identities` checks their devices
        return
    own: _Devices = [
        (("fabrics", fabric_name, "rails", index, "device"), rail.device) for index, rail in enumerate(fabric.rails)
    ]
    by_shape: list[_Devices] = [
        [(("nodeShapes", index, "devices", rail.name), shape.devices.get(rail.name)) for rail in fabric.rails]
        for index, shape in enumerate(shapes)
    ]
    for devices in (own, *by_shape):
        owners: dict[str, str] = {}
        for rail, (path, device) in zip(fabric.rails, devices, strict=True):
            owner = owners.setdefault(device, rail.name) if device is not None else rail.name
            if owner != rail.name:
                message = (
                    f"{_quote(device)} is already the device of rail {_quote(owner)}, so {_quote(rail.name)} adds no "
                    f"bandwidth; name the device of {_quote(rail.name)}, or remove one of the two"
                )
                yield Finding(path, message)


def _check_resources(fabric: model.Fabric, accelerators: Sequence[str]) -> Iterator[Finding]:
    of_rails = {rail.resource: rail.name for rail in fabric.rails}
    for index, rail in enumerate(fabric.rails):
        if rail.resource in accelerators:
            message = (
                f"{_quote(rail.resource)} is one of `accelerators`, so pods would get more of them than they "
                "request; name the resource of the NICs' device plugin, such as nvidia.com/mlx5_0"
            )
            yield Finding(("rails", index, "resource"), message)
    for resource, amount in fabric.resources.items():
        path: Path = ("resources", resource)
        if resource in accelerators:
            yield Finding(
                path, "is an accelerator, and each container requests its own number of accelerators; remove it"
            )
        elif resource in of_rails:
            rail_name = _quote(of_rails[resource])
            yield Finding(path, f"is the resource of rail {rail_name}, so its devices are requested already; remove it")
        size = _parse_bytes(amount)
        if not resource.startswith(_HUGE_PAGES):
            if size is None:
                yield Finding(path, f"{_quote(amount)} is not a positive whole number; set one, such as 1")
        elif size is None or size % quantity.parse(resource.removeprefix(_HUGE_PAGES)):
            yield Finding(path, f"{_quote(amount)} is not a positive multiple of the page size; set one, such as 1Gi")


def _parse_bytes(amount: str | int) -> int | None:
    """Return a quantity as a positive whole number; None if it is none."""
    try:
        size = quantity.parse(amount)
    except quantity.InvalidQuantityError:
        return None
    return int(size) if size > 0 and size.denominator == 1 else None


# --- one fabric ------------------------------------------------------------------------------------------


def _check_missing_keys(fabric: model.Fabric) -> Iterator[Finding]:
    nccl, transport = fabric.nccl, fabric.transport
    if not fabric.rails and transport is not model.Transport.TCP:
        message = f"is missing: transport {transport} needs at least one rail, such as [{{name: rail0}}]"
        yield Finding(("rails",), message)
    if fabric.rails_per_pod == "proportional" and fabric.gpus_per_node is None:
        message = "is missing: railsPerPod proportional needs the number of GPUs of a node, such as 8"
        yield Finding(("gpusPerNode",), message)
    forbids_tcp_beside_plugin = nccl.forbid_tcp_fallback and fabric.env.get(_NET_PLUGIN, "none") != "none"
    if nccl.plugin is None and (transport is model.Transport.PLUGIN or forbids_tcp_beside_plugin):
        message = "is missing: name the network of the plugin as NCCL_NET selects it, such as gIB"
        yield Finding(("nccl", "plugin"), message)
    if fabric.nvlink_segment is not None and not compiled.list_domain_keys(fabric.placement):
        message = "needs NVLink domains: write their label first in placement.domains, such as [nvidia.com/gpu.clique]"
        yield Finding(("nvlinkSegment",), message)


def _check_conflicting_keys(fabric: model.Fabric) -> Iterator[Finding]:
    nccl, has_claims, is_tcp = fabric.nccl, fabric.claims is not None, fabric.transport is model.Transport.TCP
    if fabric.transport is model.Transport.PVRDMA and len(fabric.rails) > 1:
        message = f"has {len(fabric.rails)} rails, but a virtual machine has only one PVRDMA device: keep one rail"
        yield Finding(("rails",), message)
    if is_tcp and nccl.plugin is not None:
        yield Finding(("nccl", "plugin"), "has no effect: transport tcp turns plugins off; remove it")
    if is_tcp and has_claims:
        message = "has no effect: transport tcp has no rails; remove claims, or set the transport of the rails"
        yield Finding(("claims",), message)
    if has_claims and fabric.device_scope == "pod":
        yield Finding(("deviceScope",), '"pod" has no effect: a claim requests each rail; remove it')
    if fabric.library_path and _LIBRARY_PATH in fabric.env:
        message = "is extended by the directories of libraryPath; remove one of the two keys"
        yield Finding(("env", _LIBRARY_PATH), message)
    for name in fabric.env:
        if nccl.is_set_by_vendor(name):
            message = "is one of nccl.vendorVariables, which the vendor sets; remove it here or there"
            yield Finding(("env", name), message)


def _check_rails(fabric: model.Fabric) -> Iterator[Finding]:
    yield from _check_unique_names(("rails",), "rail", [rail.name for rail in fabric.rails])
    problem = ""  # of the key `network`
    if fabric.host_network:
        problem = "would not be attached: Multus ignores pods on the host network; remove it, or hostNetwork"
    elif fabric.claims is not None:
        problem = "would attach a second device: dranet moves the interface into the pod without Multus; remove the key"
    for index, rail in enumerate(fabric.rails):
        if rail.network is not None and problem:
            yield Finding(("rails", index, "network"), f"{_quote(rail.network)} {problem}")
        if rail.claim is not None and fabric.claims is None:
            message = "has no effect: the fabric has no claims; add `claims` with its deviceClass, or remove the key"
            yield Finding(("rails", index, "claim"), message)


def _check_interfaces(fabric: model.Fabric) -> Iterator[Finding]:
    """Check that the interface name of a rail is not eth0, another rail's, or a name that Multus gives to a network.

    Multus names the interface of a network without a name netN. N is its position in the pod's networks, from 1.
    """
    attached = [rail for rail in fabric.rails if rail.network is not None]
    taken = {"eth0": "the pod's cluster network"} | {
        f"net{position}": f"rail {_quote(rail.name)}'s automatic interface"
        for position, rail in enumerate(attached, start=1)
        if rail.interface is None
    }
    for index, rail in enumerate(fabric.rails):
        if rail.interface in taken:
            owner = taken[rail.interface]
            message = f"{_quote(rail.interface)} is already the name of {owner}; choose another name or remove the key"
            yield Finding(("rails", index, "interface"), message)
        elif rail.interface is not None:
            taken[rail.interface] = f"rail {_quote(rail.name)}'s interface"


def _check_mounts(fabric: model.Fabric) -> Iterator[Finding]:
    """Check that `mounts` has each path of the container once. Injection would leave out the second volume."""
    mounts = fabric.mounts
    taken = {"/": "the image"}
    if mounts.shared_memory is not None:
        taken[names.DEV_SHM] = "sharedMemory"
    if mounts.dev_infiniband:
        taken[names.DEV_INFINIBAND] = "devInfiniband"
    for key, paths in (("hostPaths", mounts.host_paths), ("configMaps", mounts.config_maps)):
        for path in paths:
            clean = views.clean_path(path)
            if clean in taken:
                message = f"is already mounted by {taken[clean]}; choose another path, or remove one of the two"
                yield Finding(("mounts", key, path), message)
            else:
                taken[clean] = key


def _check_nccl_keys(fabric: model.Fabric) -> Iterator[Finding]:
    """Check that each key of `nccl` has an effect on the fabric's transport."""
    defaults = msgspec.to_builtins(model.Nccl())
    for key, value in msgspec.to_builtins(fabric.nccl).items():
        transports = _NCCL_KEYS.get(key)
        if transports is not None and value != defaults[key] and fabric.transport not in transports:
            others = ", ".join(sorted(transports))
            yield Finding(("nccl", key), f"has no effect on transport {fabric.transport}, only on {others}; remove it")


def _check_quantities_and_prefixes(fabric: model.Fabric) -> Iterator[Finding]:
    """Check quantities and address prefixes, whose form a regular expression cannot describe."""
    amount, prefix = fabric.mounts.shared_memory, fabric.nccl.address_range
    if amount is not None and _parse_bytes(amount) is None:
        message = f"{_quote(amount)} is not a positive number of bytes; set a quantity such as 64Gi"
        yield Finding(("mounts", "sharedMemory"), message)
    try:
        ipaddress.ip_network(prefix or "0.0.0.0/0", strict=False)
    except ValueError:
        message = f"{_quote(prefix)} is not an address prefix; set one, such as 192.168.0.0/16 or fd00::/8"
        yield Finding(("nccl", "addressRange"), message)


def _check_placement(fabric: model.Fabric) -> Iterator[Finding]:
    placement = fabric.placement
    for index in _find_repeated_values(placement.domains):
        message = f"{_quote(placement.domains[index])} is listed twice; name another level, or remove it"
        yield Finding(("placement", "domains", index), message)
    levels = compiled.list_domain_keys(placement)
    if len(placement.oversubscription) > len(levels):
        counts = text.format_count(len(placement.oversubscription), "value"), text.format_count(len(levels), "domain")
        message = f"has {' for '.join(counts)}; give at most one for each domain, closest first"
        yield Finding(("placement", "oversubscription"), message)
    # the levels by which a scheduler can keep a gang in one domain
    if placement.gang_topology != "off" and not compiled.list_shared_domain_keys(placement):
        message = (
            "needs a domain that all rails share: a key of `domains` without {rail}; add one, such as "
            'example.com/spine, or set gangTopology: "off"'
        )
        yield Finding(("placement", "gangTopology"), message)
    elif placement.gang_topology == "required" and placement.preset == "volcano" and not placement.domains:
        message = (
            "needs the widest level, which preset volcano leaves open; list the levels of your HyperNodes in domains, "
            "such as [hypernode/level-1, hypernode/level-2]"
        )
        yield Finding(("placement", "gangTopology"), message)


# --- rails that come as claims (docs/interface.md 2.6) ---------------------------------------------------


def _check_claims(fabric: model.Fabric, claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    if claims.rail_attribute in objects.WITHDRAWN:
        message = (
            f"{_quote(claims.rail_attribute)} is missing from slices while a pod holds the device, because its "
            "interface is in the pod then; use dra.net/rdmaDevice or dra.net/pciAddress"
        )
        yield Finding(("claims", "railAttribute"), message)
    if claims.accelerator_class is None and claims.pair_by not in ("pcieRoot", compiled.NO_PAIRS):  # not the default
        message = (
            "has no effect: only GPUs of the same claim can be paired with rails; "
            "add acceleratorClass, the DeviceClass of the GPUs, or remove the key"
        )
        yield Finding(("claims", "pairBy"), message)
    if claims.accelerator_class and claims.pair_by != compiled.NO_PAIRS and fabric.gpus_per_node is None:
        message = (
            f"is missing: pairBy {claims.pair_by} needs the number of GPUs of a node, such as 8; "
            "without it, the GPUs of a rail are unknown"
        )
        yield Finding(("gpusPerNode",), message)
    yield from _check_rail_identities(fabric, claims, shapes)


def _check_rail_identities(fabric: model.Fabric, claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    """Check that a claim for a rail can select its devices, and no device of another rail."""
    rail_by_value: dict[object, str] = {}
    for index, rail in enumerate(fabric.rails):
        if rail.resource is not None:
            message = (
                f"{_quote(rail.resource)} is an extended resource, but pods request the fabric's rails by "
                "claims; remove the resource, or `claims` of the fabric"
            )
            yield Finding(("rails", index, "resource"), message)
        values = compiled.list_attribute_values(rail, shapes)
        if not values:
            message = (
                f"is missing: nothing identifies the devices of rail {_quote(rail.name)}; set `device`, such as "
                f"mlx5_0, or set `claim` to the value of {claims.rail_attribute}"
            )
            yield Finding(("rails", index, "claim"), message)
        for value in values:
            earlier = rail_by_value.setdefault(value, rail.name)
            if earlier != rail.name:
                message = (
                    f"{_quote(value)} identifies both rail {_quote(earlier)} and {_quote(rail.name)}, in `rails` or "
                    "`nodeShapes`, so a claim for one rail could get the device of the other: claims do not depend on "
                    "the shape of the node; use a railAttribute whose values are equal on all nodes, or a fabric for "
                    "each shape"
                )
                yield Finding(("rails", index), message)
                break
