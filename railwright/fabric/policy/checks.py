"""Checks relations between keys of a policy document, which the schema of single keys cannot express.

A rule is a function and its row in one of the lists at the end: rules about the document, about one fabric, and about
the claims of one. Paths of findings about a fabric are relative to it until `check` completes them. The input is a
typed document (docs/interface.md 2).
"""

import dataclasses
import difflib
import ipaddress
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from railwright.fabric import names, quantity, text, topology, views
from railwright.fabric.claims import objects
from railwright.fabric.policy import compiled, model, presets

Path = tuple[str | int, ...]
Shapes = Sequence[model.NodeShape]
_PlacedDevice = tuple[Path, str, str | None]  # where a device of a rail is written, the rail, the device

_MAX_VALUE_LENGTH = 80  # characters of a value in a message: enough to find it, too few to flood a log
_MAX_NAMES = 20  # names in a list, for the same reason

_RESERVED_NAMES = (names.FABRIC_DEFAULT, names.FABRIC_NONE)  # label values that are not names of fabrics
_HUGE_PAGES = "hugepages-"
_TRANSPORTS_WITH_ADDRESSES = frozenset({model.Transport.ROCE, model.Transport.ERDMA, model.Transport.PVRDMA})
_NCCL_KEYS = {  # of `nccl`: the transports on which each has an effect
    "gidIndex": _TRANSPORTS_WITH_ADDRESSES,
    "addressRange": _TRANSPORTS_WITH_ADDRESSES,
    "trafficClass": frozenset({model.Transport.ROCE}),
    "forbidTcpFallback": frozenset(model.Transport) - {model.Transport.TCP},
}
# capabilities(7), and ALL of Kubernetes: a container with another one does not start
_CAPABILITIES = (
    "ALL AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE CHOWN DAC_OVERRIDE DAC_READ_SEARCH "
    "FOWNER FSETID IPC_LOCK IPC_OWNER KILL LEASE LINUX_IMMUTABLE MAC_ADMIN MAC_OVERRIDE MKNOD NET_ADMIN "
    "NET_BIND_SERVICE NET_BROADCAST NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT "
    "SYS_MODULE SYS_NICE SYS_PACCT SYS_PTRACE SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM"
)
_LIBRARY_PATH, _NET_PLUGIN = "LD_LIBRARY_PATH", "NCCL_NET_PLUGIN"


@dataclasses.dataclass(frozen=True)
class Finding:
    """The path of a key that violates a rule, and a message with the fix."""

    path: Path
    message: str


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
        fabric_names = text.join_first(document.fabrics, _MAX_NAMES)
        message = f"{_quote(name)} is not a fabric of this policy; name one of: {fabric_names}"
        yield Finding(("defaultFabric",), message)


def _check_fabric_names(document: model.PolicyDocument) -> Iterator[Finding]:
    for name in document.fabrics:
        if name in _RESERVED_NAMES:
            yield Finding(
                ("fabrics", name),
                f"{_quote(name)} is a reserved value of the label {names.FABRIC}; give the fabric another name",
            )


def _check_accelerators(document: model.PolicyDocument) -> Iterator[Finding]:
    for index, resource in enumerate(document.accelerators):
        yield from _check_extended_resource(("accelerators", index), resource)
    accelerators = text.join_first(document.accelerators, _MAX_NAMES)
    for resource in document.accelerator_units:
        if resource not in document.accelerators:
            message = f"is not one of accelerators: {accelerators}; add it there, or remove it"
            yield Finding(("acceleratorUnits", resource), message)
    for index in _find_repeated(document.accelerators):
        resource = _quote(document.accelerators[index])
        yield Finding(("accelerators", index), f"{resource} is listed twice, and would be counted twice; keep one")


def _check_shape_names(document: model.PolicyDocument) -> Iterator[Finding]:
    return _check_unique_names(("nodeShapes",), "shape", [shape.name for shape in document.node_shapes])


def _check_shape_order(document: model.PolicyDocument) -> Iterator[Finding]:
    """Check that each shape has nodes: a node has the first shape with labels that all match."""
    for index, shape in enumerate(document.node_shapes):
        earlier = model.find_shape(document.node_shapes[:index], shape.match)
        if earlier is not None:
            message = (
                f"has no nodes: those with all labels of shape {_quote(shape.name)} have the earlier shape "
                f"{_quote(earlier.name)}; put {_quote(shape.name)} before it, or remove it"
            )
            yield Finding(("nodeShapes", index, "match"), message)


def _check_devices(document: model.PolicyDocument) -> Iterator[Finding]:
    """Check that no two rails of a fabric have the same RDMA device, in their own keys or on nodes of one shape."""
    for name, fabric in document.fabrics.items():
        if fabric.claims is not None:  # `_check_ambiguity` is about these
            continue
        own: Iterator[_PlacedDevice] = (
            (("fabrics", name, "rails", index, "device"), rail.name, rail.device)
            for index, rail in enumerate(fabric.rails)
        )
        yield from _check_unique_devices(own)
        for index, shape in enumerate(document.node_shapes):
            yield from _check_unique_devices(
                (("nodeShapes", index, "devices", rail.name), rail.name, shape.devices.get(rail.name))
                for rail in fabric.rails
            )


def _check_unique_devices(devices: Iterable[_PlacedDevice]) -> Iterator[Finding]:
    rail_by_device: dict[str, str] = {}
    for path, rail, device in devices:
        owner = rail_by_device.setdefault(device, rail) if device is not None else rail
        if owner != rail:
            message = (
                f"{_quote(device)} is already the device of rail {_quote(owner)}, so {_quote(rail)} adds no bandwidth; "
                f"name the device of {_quote(rail)}, or remove one of the two"
            )
            yield Finding(path, message)


def _check_shape_rails(document: model.PolicyDocument) -> Iterator[Finding]:
    rail_names = dict.fromkeys(rail.name for fabric in document.fabrics.values() for rail in fabric.rails)
    choice = text.join_first(rail_names, _MAX_NAMES) or "none"
    for index, shape in enumerate(document.node_shapes):
        for path, name in _list_shape_rails(shape):
            if name not in rail_names:
                message = f"{_quote(name)} is not a rail of any fabric; the rails are: {choice}"
                yield Finding(("nodeShapes", index, *path), message)


def _list_shape_rails(shape: model.NodeShape) -> Iterator[tuple[Path, str]]:
    for name in shape.devices:
        yield ("devices", name), name
    for index, numa in enumerate(shape.numa):
        for position, name in enumerate(numa.rails):
            yield ("numa", index, "rails", position), name


def _check_numa_nodes(document: model.PolicyDocument) -> Iterator[Finding]:
    """Check that each GPU and each rail of a shape is on one NUMA node."""
    for index, shape in enumerate(document.node_shapes):
        for key, noun in (("gpus", "GPU"), ("rails", "rail")):
            numa_node_of_item: dict[str | int, int] = {}
            for number, numa in enumerate(shape.numa):
                items: Sequence[str | int] = numa.gpus if key == "gpus" else numa.rails
                for position, item in enumerate(items):
                    if item in numa_node_of_item:
                        message = (
                            f"{noun} {_quote(item)} is already on NUMA node {numa_node_of_item[item]}; "
                            f"list each {noun} under one NUMA node"
                        )
                        yield Finding(("nodeShapes", index, "numa", number, key, position), message)
                    numa_node_of_item.setdefault(item, number)


# --- one fabric ------------------------------------------------------------------------------------------


def _check_rails(fabric: model.Fabric) -> Iterator[Finding]:
    if not fabric.rails and fabric.transport is not model.Transport.TCP:
        yield Finding(
            ("rails",),
            f"is missing: a fabric with transport {fabric.transport} needs at least one rail, "
            "such as [{name: rail0}]; only tcp needs none",
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


def _check_capabilities(fabric: model.Fabric) -> Iterator[Finding]:
    capabilities = _CAPABILITIES.split()
    for index, name in enumerate(fabric.security.capabilities):
        if name not in capabilities:
            close = difflib.get_close_matches(name[:_MAX_VALUE_LENGTH], capabilities, n=1)
            fix = f"did you mean {close[0]}?" if close else "write one of capabilities(7), such as IPC_LOCK"
            message = f"{_quote(name)} is no capability of Linux, so containers would not start; {fix}"
            yield Finding(("security", "capabilities", index), message)


def _check_nccl_keys(fabric: model.Fabric) -> Iterator[Finding]:
    """Check that each key of `nccl` has an effect on the fabric's transport."""
    defaults = msgspec.to_builtins(model.Nccl())
    for key, value in msgspec.to_builtins(fabric.nccl).items():
        transports = _NCCL_KEYS.get(key)
        if transports is not None and value != defaults[key] and fabric.transport not in transports:
            others = ", ".join(sorted(transports))
            yield Finding(("nccl", key), f"has no effect on transport {fabric.transport}, only on {others}; remove it")


def _check_keys(fabric: model.Fabric) -> Iterator[Finding]:
    """Check keys that need another one, or that have no effect beside another one."""
    nccl, is_tcp, has_claims = fabric.nccl, fabric.transport is model.Transport.TCP, fabric.claims is not None
    forbids_tcp_beside_plugin = nccl.forbid_tcp_fallback and fabric.env.get(_NET_PLUGIN, "none") != "none"
    needs_plugin = fabric.transport is model.Transport.PLUGIN or forbids_tcp_beside_plugin
    has_domains = bool(presets.list_domain_keys(fabric.placement))
    rows: tuple[tuple[bool, Path, str], ...] = (
        (
            fabric.rails_per_pod == "proportional" and fabric.gpus_per_node is None,
            ("gpusPerNode",),
            "is missing: railsPerPod proportional needs the number of GPUs of a node, such as 8",
        ),
        (
            fabric.primary_interface == "lo",
            ("primaryInterface",),
            '"lo" is the loopback interface; set that of NCCL\'s bootstrap, such as eth0',
        ),
        (
            needs_plugin and nccl.plugin is None,
            ("nccl", "plugin"),
            "is missing: name the network of the plugin as NCCL_NET selects it, such as gIB",
        ),
        (
            is_tcp and nccl.plugin is not None,
            ("nccl", "plugin"),
            "has no effect: transport tcp keeps plugins out; remove it",
        ),
        (
            bool(fabric.library_path) and _LIBRARY_PATH in fabric.env,
            ("env", _LIBRARY_PATH),
            "is extended by libraryPath; remove it, or libraryPath",
        ),
        (
            fabric.nvlink_segment is not None and not has_domains,
            ("nvlinkSegment",),
            "needs NVLink domains: write their label first in placement.domains, such as [nvidia.com/gpu.clique]",
        ),
        (
            has_claims and fabric.device_scope == "pod",
            ("deviceScope",),
            '"pod" has no effect on claims, in which each rail is requested; remove it',
        ),
        (
            has_claims and is_tcp,
            ("claims",),
            "has no effect: transport tcp has no rails; remove claims, or set the transport of the rails",
        ),
    )
    yield from (Finding(path, message) for is_wrong, path, message in rows if is_wrong)
    for name in fabric.env:
        if nccl.is_of_vendor(name):
            message = "is one of nccl.vendorVariables, which the vendor sets; remove it here or there"
            yield Finding(("env", name), message)
    for index, rail in enumerate(fabric.rails):
        if rail.claim is not None and not has_claims:
            message = "has no effect: the fabric has no claims; add `claims` with its deviceClass, or remove the key"
            yield Finding(("rails", index, "claim"), message)


def _check_networks(fabric: model.Fabric) -> Iterator[Finding]:
    """Check that Multus attaches the networks of the rails, and no second device."""
    if fabric.host_network:
        problem = "would not be attached: Multus ignores pods on the host network; remove it, or hostNetwork"
    elif fabric.claims is not None:
        problem = "would attach a second device: dranet moves the interface into the pod without Multus; remove the key"
    else:
        return
    for index, rail in enumerate(fabric.rails):
        if rail.network is not None:
            yield Finding(("rails", index, "network"), f"{_quote(rail.network)} {problem}")


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


def _check_interfaces(fabric: model.Fabric) -> Iterator[Finding]:
    """Check that a rail's interface name is unique among the pod's interfaces, other rails and Multus's netN names."""
    automatic = _build_automatic_names(fabric)
    taken = {"lo": "the loopback interface", "eth0": "the pod's cluster network"}
    for index, rail in enumerate(fabric.rails):
        if rail.interface is None:
            continue
        owner = taken.get(rail.interface) or (rail.network and automatic.get(rail.interface))
        if owner:
            message = f"{_quote(rail.interface)} is already the name of {owner}; choose another name or remove the key"
            yield Finding(("rails", index, "interface"), message)
        taken.setdefault(rail.interface, f"rail {_quote(rail.name)}'s interface")


def _build_automatic_names(fabric: model.Fabric) -> dict[str, str]:
    """Return the owners of the netN names that Multus gives to rails without an interface name.

    N is the position among all networks of the pod, from 1.
    """
    attached = [rail for rail in fabric.rails if rail.network is not None]
    return {
        f"net{position}": f"rail {_quote(rail.name)}'s automatic interface"
        for position, rail in enumerate(attached, start=1)
        if rail.interface is None
    }


def _check_resources(document: model.PolicyDocument) -> Iterator[Finding]:
    for name, fabric in document.fabrics.items():
        of_rails = {rail.resource: rail.name for rail in fabric.rails}
        for index, rail in enumerate(fabric.rails):
            if rail.resource in document.accelerators:
                message = (
                    f"{_quote(rail.resource)} is one of `accelerators`, of which pods would get more than they "
                    "request; name the resource of the NICs' device plugin, such as nvidia.com/mlx5_0"
                )
                yield Finding(("fabrics", name, "rails", index, "resource"), message)
        for resource, amount in fabric.resources.items():
            path: Path = ("fabrics", name, "resources", resource)
            if resource in document.accelerators:
                message = "is an accelerator, of which each container requests its own number; remove it"
                yield Finding(path, message)
            elif resource in of_rails:
                message = (
                    f"is the resource of rail {_quote(of_rails[resource])}, whose devices are requested; remove it"
                )
                yield Finding(path, message)
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
    """Check that each path in the container is mounted once."""
    mounts = fabric.mounts
    taken = {"/": "the image"}
    if mounts.shared_memory is not None:
        taken[names.DEV_SHM] = "sharedMemory"
    if mounts.dev_infiniband:
        taken[names.DEV_INFINIBAND] = "devInfiniband"
    paths = [
        *(("hostPaths", path) for path in mounts.host_paths),
        *(("configMaps", path) for path in mounts.config_maps),
    ]
    for key, path in paths:
        if owner := taken.get(views.clean_path(path)):
            message = f"is already mounted by {owner}; choose another path, or remove one of the two"
            yield Finding(("mounts", key, path), message)
        taken.setdefault(views.clean_path(path), key)


def _parse_bytes(amount: str | int) -> int | None:
    """Return a positive whole amount; None for any other value."""
    try:
        size = quantity.parse(amount)
    except quantity.InvalidQuantityError:
        return None
    return int(size) if size > 0 and size.denominator == 1 else None


def _check_address_range(fabric: model.Fabric) -> Iterator[Finding]:
    prefix = fabric.nccl.address_range
    if prefix is None:
        return
    path: Path = ("nccl", "addressRange")
    try:
        version = ipaddress.ip_network(prefix, strict=False).version if "/" in prefix else None
    except ValueError:
        version = None
    if version is None or "%" in prefix or not prefix.rpartition("/")[2].isdigit():
        message = f"{_quote(prefix)} is not an address prefix; set one, such as 192.168.0.0/16 or fd00::/8"
        yield Finding(path, message)


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
            yield Finding(("placement", "domains", index), message)
    levels = presets.list_domain_keys(placement)
    if len(placement.oversubscription) > len(levels):
        counts = text.format_count(len(placement.oversubscription), "value"), text.format_count(len(levels), "domain")
        message = f"has {' for '.join(counts)}; give at most one for each domain, closest first"
        yield Finding(("placement", "oversubscription"), message)
    if problem := _find_topology_problem(placement):
        yield Finding(("placement", "gangTopology"), problem)


def _find_topology_problem(placement: model.Placement) -> str:
    """Return why no scheduler can keep a gang in one domain; "" if one can."""
    if placement.gang_topology == "off":
        return ""
    if not presets.list_single_keys(placement):
        return (
            "has no level to ask for: domains has no key of a single label; add one without {rail}, such as "
            'example.com/spine, or set gangTopology: "off"'
        )
    if placement.gang_topology == "required" and placement.preset == "volcano" and not placement.domains:
        return (
            "has no widest level: preset volcano has as many levels as HyperNodes may have tiers; list those that they "
            "have in domains, such as [hypernode/level-1, hypernode/level-2]"
        )
    return ""


# --- rails that come as claims (docs/interface.md 2.6) ---------------------------------------------------


def _check_pairs(fabric: model.Fabric, claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    if claims.accelerator_class is None:
        if claims.pair_by not in ("pcieRoot", compiled.NO_PAIRS):  # the default cannot be told from pcieRoot
            message = (
                "has no effect: only GPUs of the same claim can be paired with rails; "
                "add acceleratorClass, the DeviceClass of the GPUs, or remove the key"
            )
            yield Finding(("claims", "pairBy"), message)
        return
    if claims.pair_by == compiled.NO_PAIRS:
        return
    if fabric.gpus_per_node is None:
        message = (
            f"is missing: pairBy {claims.pair_by} needs the number of GPUs of a node, such as 8; "
            "without it, the GPUs of a rail are unknown"
        )
        yield Finding(("gpusPerNode",), message)


def _check_size(fabric: model.Fabric, claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    """Check that the devices of a rail, or of a pair, fit into one claim: constraints do not reach across claims."""
    gpus, rails = fabric.gpus_per_node, len(fabric.rails)
    if fabric.devices_per_rail > objects.MAX_DEVICES:
        message = (
            f"{fabric.devices_per_rail} devices of a rail are one request, but a ResourceClaim has at most "
            f"{objects.MAX_DEVICES} devices; lower it"
        )
        yield Finding(("devicesPerRail",), message)
        return
    if claims.accelerator_class is None or claims.pair_by == compiled.NO_PAIRS or gpus is None or not rails:
        return
    groups = min(gpus, rails)
    devices = gpus // groups + -(-rails // groups) * fabric.devices_per_rail
    if devices > objects.MAX_DEVICES:
        message = (
            f"{fabric.devices_per_rail} makes {devices} devices of each pair of GPUs and rails, but a ResourceClaim "
            f"has at most {objects.MAX_DEVICES}; lower it, or set claims.pairBy: none"
        )
        yield Finding(("devicesPerRail",), message)


# --- what identifies each of these rails -----------------------------------------------------------------


def _check_attribute(_fabric: model.Fabric, claims: model.Claims, _shapes: Shapes) -> Iterator[Finding]:
    if claims.rail_attribute in objects.WITHDRAWN:
        message = (
            f"{_quote(claims.rail_attribute)} is gone while a pod holds the device, because its interface is in the "
            "pod then; use dra.net/rdmaDevice or dra.net/pciAddress"
        )
        yield Finding(("claims", "railAttribute"), message)


def _check_identities(fabric: model.Fabric, claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    """Check that each rail is identified exactly once."""
    for index, rail in enumerate(fabric.rails):
        path: Path = ("rails", index)
        if rail.resource is not None:
            message = (
                f"{_quote(rail.resource)} is an extended resource, but the fabric's rails come as claims; "
                "remove it, or remove claims from the fabric"
            )
            yield Finding((*path, "resource"), message)
        if isinstance(rail.claim, int) and not -(2**63) <= rail.claim < 2**63:
            message = f"{rail.claim} needs more than 64 bits; write a smaller number, or quote it"
            yield Finding((*path, "claim"), message)
        if not compiled.list_values(rail, shapes):
            message = (
                f"is missing: nothing identifies the devices of rail {_quote(rail.name)}; set device, such as mlx5_0, "
                f"or claim to the value of {claims.rail_attribute}"
            )
            yield Finding((*path, "claim"), message)


def _check_ambiguity(fabric: model.Fabric, _claims: model.Claims, shapes: Shapes) -> Iterator[Finding]:
    """Check that no device is selected by two rails."""
    rail_by_value: dict[object, model.Rail] = {}
    for index, rail in enumerate(fabric.rails):
        for value in compiled.list_values(rail, shapes):
            earlier = rail_by_value.setdefault(value, rail)
            if earlier.name != rail.name:
                message = (
                    f"{_quote(value)} identifies both rail {_quote(earlier.name)} and {_quote(rail.name)}, by their "
                    "own keys or in nodeShapes, so that each could get the other's device: one claim serves nodes of "
                    "all shapes; identify them by an attribute that is equal on all nodes, or use a fabric for each "
                    "shape"
                )
                yield Finding(("rails", index), message)
                break


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
    return text.truncate(json.dumps(value), _MAX_VALUE_LENGTH)


# --- the rules -------------------------------------------------------------------------------------------

_DOCUMENT_RULES: tuple[Callable[[model.PolicyDocument], Iterator[Finding]], ...] = (
    _check_default_fabric,
    _check_fabric_names,
    _check_accelerators,
    _check_shape_names,
    _check_shape_order,
    _check_shape_rails,
    _check_devices,
    _check_numa_nodes,
    _check_resources,
)
_FABRIC_RULES: tuple[Callable[[model.Fabric], Iterator[Finding]], ...] = (
    _check_rails,
    _check_rail_values,
    _check_keys,
    _check_networks,
    _check_annotations,
    _check_shared_memory,
    _check_mount_paths,
    _check_interfaces,
    _check_address_range,
    _check_capabilities,
    _check_nccl_keys,
    _check_placement,
)
_CLAIM_RULES: tuple[Callable[[model.Fabric, model.Claims, Shapes], Iterator[Finding]], ...] = (
    _check_pairs,
    _check_size,
    _check_attribute,
    _check_identities,
    _check_ambiguity,
)
