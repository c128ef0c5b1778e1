"""Derives a fabric from what nodes and networks show, for nodes that no profile fits.

Each value has a comment with its origin. What no object shows is a guess, and the comment says so.
"""

import collections
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.cli.clouds import cluster_objects, matching
from railwright.cli.clouds.cluster_objects import Cluster
from railwright.fabric import node_views, text
from railwright.fabric.claims import drivers
from railwright.fabric.lint import rule_types
from railwright.fabric.policy import model, presets

CLIQUE = model.NvLink().domain
_GPU_CLASS = "gpu.nvidia.com"
_ORIGIN = "derived"
_MAX_GROUPS = 16  # derived fabrics of a policy that somebody reads
_MAX_RAILS = 64  # of a derived fabric; a plugin of shared devices offers more devices than a node has NICs
# Words by which names of resources mean NICs, beside those of published device plugins
_NIC = re.compile(r"(?:\b|_)(rail|fabric|nics?)(?=\b|_|\d)")
_INFINIBAND = re.compile(r"(?:\b|_)(ib|infiniband|ipoib)(?=\b|_)")  # in names of resources and types of CNI plugins
# Words by which names of labels mean switches, closest first
_TIERS = ("clique", "leaf", "tor", "rack", "subblock", "block", "spine", "superpod", "core")
_TIER = re.compile(rf"(?:\b|_)({'|'.join(_TIERS)})(?=\b|_|\d)")
_YAML_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null"})  # not text without quotes
_DRIVER_KINDS = {driver.name: kind for kind, driver in drivers.KNOWN.items() if kind != "sriov-multus"}
_FORMS = {
    driver.name: model.DeviceName if driver.has_rdma_names else model.AttributeValue
    for driver in drivers.KNOWN.values()
}  # of the values that tell rails apart


class Section(NamedTuple):
    """A fabric of the policy, from a profile or derived: its nodes, and the lines of its keys with comments.

    Without lines the comments say why there is none.
    """

    name: str
    origin: str  # before the name where two fabrics have the same
    nodes: Sequence[node_views.Node]
    lines: Sequence[str]
    comments: Sequence[str]
    accelerators: Sequence[str] = ()
    pools: frozenset[str] = frozenset()  # resources of its rails
    shapes: Sequence[str] = ()  # lines of nodeShapes


class _Rails(NamedTuple):
    """Rails of nodes: the lines of the keys that describe them, and words that show their transport."""

    lines: Sequence[str]
    words: str
    used: frozenset[str] = frozenset()  # resources
    comments: Sequence[str] = ()  # what is left out


def derive(nodes: Sequence[node_views.Node], cluster: Cluster) -> Iterator[Section]:
    """Yield a section for each group of nodes with the same accelerators and NICs, that of most nodes first."""
    groups: dict[tuple[object, ...], list[node_views.Node]] = collections.defaultdict(list)
    networked = {network.resource for network in cluster.networks.values()}
    for node in nodes:
        rails = tuple((driver, tuple(values)) for driver, values in list_claimed(node, cluster).items())
        pools = [row for row in cluster_objects.list_extended(node).items() if _is_nic(row[0]) or row[0] in networked]
        groups[(*pools, rails, matching.count_gpus(node, cluster))].append(node)
    largest = sorted(groups.values(), key=len, reverse=True)
    count = 0
    for members in largest[:_MAX_GROUPS]:
        section = _derive_group(members, cluster, f"rdma{count or ''}")
        count += bool(section.lines)
        yield section
    if rest := [node for members in largest[_MAX_GROUPS:] for node in members]:
        yield Section("", _ORIGIN, rest, (), [f"the nodes have more than {_MAX_GROUPS} sets of devices"])


def name_nodes(nodes: Sequence[node_views.Node]) -> str:
    """Return the number of nodes, and the first names."""
    names = [node.metadata.name for node in nodes]
    return f"{text.format_count(len(names), 'node')} ({text.join_first(names, 2)})"


def _derive_group(nodes: Sequence[node_views.Node], cluster: Cluster, name: str) -> Section:
    node = nodes[0]
    resources = cluster_objects.list_extended(node)
    rails = _find_rails(node, cluster, resources)
    unused = sorted(resources.keys() - (rails.used if rails else set()) - {*matching.ACCELERATORS})
    comments = [
        f"not used, because {reason}: {text.join_first(pools, 8)}"
        for reason, pools in (
            ("the name means no NIC", [name for name in unused if not _is_nic(name)]),
            ("slices or networks show the rails", [name for name in unused if _is_nic(name)]),
            *_list_invalid(node, cluster),
        )
        if pools
    ]
    if rails is None:
        return Section(name, _ORIGIN, nodes, (), ["no resource, slice or network means a NIC", *comments])
    head = f"{name_nodes(nodes)}: no profile fits, so this follows from their objects."
    transport, reason = _guess_transport(rails.words)
    lines = (
        f"transport: {transport}  # {reason}",
        f"gpusPerNode: {matching.count_gpus(node, cluster)}  # as the nodes offer",
        *rails.lines,
        *_list_domains(nodes),
        "security: {capabilities: [IPC_LOCK]}  # not known: needed unless the nodes do not limit locked memory",
        "mounts: {sharedMemory: 64Gi}  # not known: NCCL needs more than the 64 MiB of a container",
    )
    return Section(
        name,
        _ORIGIN,
        nodes,
        [f"    {line}" for line in lines],
        [head, *comments, *rails.comments],
        [resource for resource in matching.ACCELERATORS if resource in node.status.capacity],
        rails.used,
    )


# --- rails --------------------------------------------------------------------------------------------------


def _find_rails(node: node_views.Node, cluster: Cluster, resources: Mapping[str, int]) -> _Rails | None:
    """Return the rails by slices, networks with a resource, resources, or networks of GKE; the first that exist."""
    claimed = list_claimed(node, cluster)
    if claimed:
        return _use_claims(*next(iter(claimed.items())), node, cluster)
    return _use_networks(cluster, resources) or _use_resources(resources) or _use_gke_networks(cluster)


def list_claimed(node: node_views.Node, cluster: Cluster) -> dict[str, list[str]]:
    """Return the values of the attribute that tells the rails of a node apart, by known driver."""
    return {
        driver: valid
        for driver, values in _read_rail_values(node, cluster).items()
        if (valid := [value for value in values if _is_valid(value, _FORMS[driver])])
    }


def _list_invalid(node: node_views.Node, cluster: Cluster) -> Iterator[tuple[str, list[str]]]:
    """Yield why names of rails are left out, and the names. With one of them the policy would not be valid."""
    for driver, values in _read_rail_values(node, cluster).items():
        attribute = drivers.KNOWN[_DRIVER_KINDS[driver]].rail_attribute
        invalid = [json.dumps(value) for value in values if not _is_valid(value, _FORMS[driver])]
        yield f"no policy can have such values of {attribute}, so correct the slices of driver {driver}", invalid
    names = [json.dumps(name) for name in cluster.gke_networks if not _is_valid(name, model.RailName)]
    yield "rails cannot have such names of Networks", names


def _read_rail_values(node: node_views.Node, cluster: Cluster) -> dict[str, list[str]]:
    by_driver: dict[str, set[str]] = {}
    for device in cluster.devices.get(node.metadata.name, ()):
        kind = _DRIVER_KINDS.get(device.id.driver)
        attribute = drivers.KNOWN[kind].rail_attribute if kind else None
        value = device.get_value(attribute) if attribute else None
        if value is not None and False not in (device.get_value(name) for name in drivers.RDMA_CAPABLE):
            by_driver.setdefault(device.id.driver, set()).add(str(value))
    return {driver: sorted(values, key=text.build_natural_key) for driver, values in by_driver.items()}


def _is_valid(value: str, form: Any) -> bool:
    try:
        msgspec.convert(value, form)
    except msgspec.ValidationError:
        return False
    return True


def _use_claims(driver: str, values: Sequence[str], node: node_views.Node, cluster: Cluster) -> _Rails:
    kind = _DRIVER_KINDS[driver]
    attribute = drivers.KNOWN[kind].rail_attribute
    classes = [name for name, item in cluster.device_classes.items() if driver in " ".join(item.expressions)]
    name = classes[0] if classes else driver
    origin = f"its expression names the driver {driver}" if classes else f"not known: no DeviceClass names {driver}"
    others = f"; others: {text.join_first(classes[1:], 3)}" if classes[1:] else ""
    gpus = "" if matching.count_accelerators(node) else f", accelerators: {{deviceClass: {_GPU_CLASS}}}, pairBy: none"
    is_named = drivers.KNOWN[kind].has_rdma_names
    rails = [
        f"- {{name: rail{index}, {f'device: {_quote(value)}' if is_named else f'claim: {{value: {_quote(value)}}}'}}}"
        for index, value in enumerate(values[: drivers.MAX_DEVICES])
    ]
    return _Rails(
        [
            f"claims: {{deviceClass: {_quote(name)}, driver: {kind}{gpus}}}  # {origin}{others}",
            f"rails:  # the values of {attribute} in the ResourceSlices",
            *rails,
        ],
        f"{driver} {name} {values[0]} {' '.join(_list_encapsulations(node, driver, cluster))}",
        comments=_describe_rest(values, drivers.MAX_DEVICES),
    )


def _describe_rest(names: Sequence[str], longest: int) -> list[str]:
    rest = names[longest:]
    return [f"not used, because a fabric gets {longest} rails: {text.join_first(rest, 3)}"] if rest else []


def _list_encapsulations(node: node_views.Node, driver: str, cluster: Cluster) -> list[str]:
    """Return the kinds of links that a driver's slices name for the NICs of a node: `ether` or `infiniband`."""
    devices = [device for device in cluster.devices[node.metadata.name] if device.id.driver == driver]
    return sorted({str(device.get_value(drivers.ENCAPSULATION)) for device in devices})


def _use_networks(cluster: Cluster, resources: Mapping[str, int]) -> _Rails | None:
    """Return a rail for each network with a resource; of copies in several namespaces, those of one."""
    by_namespace: dict[str, list[cluster_objects.Network]] = collections.defaultdict(list)
    for network in cluster.networks.values():
        if network.resource in resources:
            by_namespace[network.metadata.namespace].append(network)
    if not by_namespace:
        return None
    networks: list[cluster_objects.Network] = []
    copies: list[str] = []
    used: set[str] = set()
    for namespace, members in sorted(by_namespace.items(), key=lambda row: (-len(row[1]), row[0])):
        new = [network for network in members if network.resource not in used]
        copies += [namespace] if len(new) < len(members) else []
        networks += new
        used |= {network.resource for network in new}
    networks.sort(key=lambda network: text.build_natural_key(network.name))
    comments = _describe_rest([network.name for network in networks], _MAX_RAILS)
    if copies:
        comments.append(
            f"not used, because networks above have the same resources: those of {text.join_first(copies, 3)}"
        )
    del networks[_MAX_RAILS:]
    rails = [
        f"- {{name: rail{index}, network: {network.name}, resource: {network.resource}}}"
        for index, network in enumerate(networks)
    ]
    words = " ".join(word for network in networks for word in (network.resource, *sorted(network.plugins)))
    origin = "rails:  # NetworkAttachmentDefinitions whose annotation names a resource of these nodes"
    return _Rails([origin, *rails], words, frozenset(network.resource for network in networks), comments)


def _use_resources(resources: Mapping[str, int]) -> _Rails | None:
    pools = sorted((name for name in resources if _is_nic(name)), key=text.build_natural_key)
    if not pools:
        return None
    comments = _describe_rest(pools, _MAX_RAILS)
    del pools[_MAX_RAILS:]
    amounts = {resources[pool] for pool in pools}
    lines = ["rails:  # resources whose names mean NICs; no NetworkAttachmentDefinition names them"]
    lines += [f"- {{name: rail{index}, resource: {pool}}}" for index, pool in enumerate(pools)]
    if len(amounts) == 1 and (amount := amounts.pop()) > 1:
        is_shared = amount > _MAX_RAILS // 2
        shared = "devicesPerRail: 1  # a plugin of shared devices, because a node offers"
        exclusive = f"devicesPerRail: {amount}  # all that a node offers:"
        lines.append(f"{shared if is_shared else exclusive} {amount}")
    return _Rails(lines, " ".join(pools), frozenset(pools), comments)


def _is_nic(resource: str) -> bool:
    is_named = rule_types.is_rdma(resource) or _NIC.search(resource) is not None
    return resource not in matching.ACCELERATORS and is_named


def _use_gke_networks(cluster: Cluster) -> _Rails | None:
    names = [name for name in cluster.gke_networks if _is_valid(name, model.RailName)]
    networks = [name for name in names if name != "default"][:_MAX_RAILS]
    if not networks:
        return None
    networks.sort(key=text.build_natural_key)
    return _Rails(
        [
            "rails:  # Networks of networking.gke.io: remove those without a GPU's NIC, and correct the interfaces",
            *(f"- {{name: {_quote(name)}, interface: eth{index + 1}}}" for index, name in enumerate(networks)),
            "networkAnnotation:",
            f"  key: {cluster_objects.GKE_INTERFACES}",
            "  first: [{interfaceName: eth0, network: default}]",
            '  item: {interfaceName: "{interface}", network: "{rail}"}',
            f"annotations: {{{cluster_objects.GKE_INTERFACES.replace('/interfaces', '/default-interface')}: eth0}}",
        ],
        " ".join(networks),
    )


def _guess_transport(words: str) -> tuple[str, str]:
    for transport, is_meant in (("erdma", "erdma" in words), ("efa", "efa" in words)):
        if is_meant:
            return transport, "by the name of the devices"
    if _INFINIBAND.search(words):
        return "infiniband", "by the name or type of the devices or networks; roce if the NICs are Ethernet"
    if "ether" in words.split():
        return "roce", f"by the attribute {drivers.ENCAPSULATION} of the devices"
    return "roce", "not known: infiniband if the NICs are not Ethernet (`ibv_devinfo` on a node: link_layer)"


# --- domains ------------------------------------------------------------------------------------------------


def _list_domains(nodes: Sequence[node_views.Node]) -> list[str]:
    """Return the keys for NVLink and for the domains: of a preset, or of labels whose names mean switches."""
    labels = [node.metadata.labels for node in nodes]
    common = set(labels[0]).intersection(*labels)
    lines = [f"nvlink: {{}}  # the nodes have the label {CLIQUE}"] if CLIQUE in common else []
    known = {
        name: [key for key in keys if key in common] for name, keys in presets.DOMAINS.items() if keys[0] in common
    }
    if known and not lines:
        preset, keys = next(iter(known.items()))
        return [f"placement: {{preset: {preset}}}  # the nodes have {text.join_first(keys, 3)}"]
    keys = next(iter(known.values()), []) or _list_tiers(labels, common - {CLIQUE})
    keys = [CLIQUE, *keys] if lines else keys
    if not keys:
        return ["# placement.domains is not set: the nodes share no label whose name means a switch"]
    origin = "labels of the nodes whose names mean switches, closest first: check the order"
    return [*lines, f"placement: {{domains: [{', '.join(keys)}]}}  # {origin}"]


def _list_tiers(labels: Sequence[Mapping[str, str]], common: set[str]) -> list[str]:
    """Return the labels of which each value has several nodes on average, that with most values first."""
    tiers = {key: match[1] for key in common if (match := _TIER.search(key.lower()))}
    values = {key: len({node[key] for node in labels}) for key in tiers}
    grouping = [key for key in tiers if values[key] < len(labels) or len(labels) == 1]
    return sorted(grouping, key=lambda key: (-values[key], _TIERS.index(tiers[key]), key))[:8]


def _quote(value: str) -> str:
    """Return the text as YAML in one line: a driver may write any characters, and words that are no text."""
    is_plain = re.fullmatch(r"[A-Za-z][\w.-]*", value, re.ASCII) and value.casefold() not in _YAML_WORDS
    return value if is_plain else json.dumps(value)
