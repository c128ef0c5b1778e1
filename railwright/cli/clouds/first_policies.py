"""Runs `railwright policy init`: writes a first policy of a profile, or with a fabric for each node shape of a cluster.

Nodes that no profile fits get a fabric that follows from what they and the networks show. Each value has a comment with
its origin, what is missing in the cluster, and what is not known.
"""

import argparse
import collections
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.cli import cluster_access, options, output
from railwright.cli.clouds import matching, profiles
from railwright.cli.clouds.matching import Cluster
from railwright.cluster import policies
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
        pools = [row for row in matching.list_extended(node).items() if _is_nic(row[0]) or row[0] in networked]
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
    resources = matching.list_extended(node)
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
    by_namespace: dict[str, list[matching.Network]] = collections.defaultdict(list)
    for network in cluster.networks.values():
        if network.resource in resources:
            by_namespace[network.metadata.namespace].append(network)
    if not by_namespace:
        return None
    networks: list[matching.Network] = []
    copies: list[str] = []
    used: set[str] = set()
    for namespace, members in sorted(by_namespace.items(), key=lambda row: (-len(row[1]), row[0])):
        new = [network for network in members if network.resource not in used]
        copies += [namespace] if len(new) < len(members) else []
        networks += new
        used |= {network.resource for network in new}
    networks.sort(key=lambda network: text.build_natural_key(network.metadata.full_name))
    comments = _describe_rest([network.metadata.full_name for network in networks], _MAX_RAILS)
    if copies:
        comments.append(
            f"not used, because networks above have the same resources: those of {text.join_first(copies, 3)}"
        )
    del networks[_MAX_RAILS:]
    rails = [
        f"- {{name: rail{index}, network: {network.metadata.full_name}, resource: {network.resource}}}"
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
            f"  key: {matching.GKE_INTERFACES}",
            "  first: [{interfaceName: eth0, network: default}]",
            '  item: {interfaceName: "{interface}", network: "{rail}"}',
            f"annotations: {{{matching.GKE_INTERFACES.replace('/interfaces', '/default-interface')}: eth0}}",
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


# --- the policy ---------------------------------------------------------------------------------------------


_WIDTH = 118  # columns of comments
_HEAD = "apiVersion: railwright.io/v1alpha1"
_FIRST = "A first policy, by `railwright policy init`. Read the comments. When it is installed: railwright check"


def print_policy(arguments: argparse.Namespace) -> int:
    """Print the policy of a profile or of a cluster and return 0. Raise UnreadableError or ClusterError."""
    if not arguments.cloud and not arguments.from_cluster:
        raise output.UnreadableError(f"give --from-cluster, or --cloud NAME; {profiles.format_names()}")
    chosen = [profiles.find(arguments.cloud)] if arguments.cloud else profiles.list_profiles()
    if arguments.from_cluster:
        cluster = cluster_access.run(options.get_cluster(arguments), matching.read, "a profile: --cloud NAME")
        sys.stdout.write(write_cluster(cluster, chosen))
    else:
        sys.stdout.write(write_profile(chosen[0]))
    return output.OK


def write_profile(profile: profiles.Profile) -> str:
    """Return the policy of a profile, with all its shapes."""
    shapes = [shape.title for shape in profiles.list_shapes(profile)]
    comments = [
        _FIRST,
        f"From the profile {profile.name}: {'; '.join(shapes)}. Remove the fabrics of shapes that you do not have.",
        *_describe(profile),
    ]
    return "".join(f"{line}\n" for line in _format_comments(comments, "")) + profile.read_text("policy.yaml")


def write_cluster(cluster: Cluster, candidates: Sequence[profiles.Profile]) -> str:
    """Return the policy of a cluster. Nodes that no shape of the candidates fits get derived fabrics.

    Raises UnreadableError if no node shows a fabric.
    """
    shapes = [shape for profile in candidates for shape in profiles.list_shapes(profile)]
    groups: dict[tuple[str, str], list[tuple[node_views.Node, matching.Match]]] = {}
    others: list[node_views.Node] = []
    for node, match in matching.match_nodes(cluster, shapes):
        if match is not None:
            groups.setdefault((match.shape.profile.name, match.shape.fabric_name), []).append((node, match))
        elif matching.count_gpus(node, cluster):
            others.append(node)
    sections = [_write_shape(members, cluster) for members in groups.values()]
    derived = list(derive(others, cluster))
    sections += [section for section in derived if section.lines]
    unknown = [section for section in derived if not section.lines]
    if not sections:
        raise output.UnreadableError(_describe_nothing(cluster, unknown))
    result = "".join(f"{line}\n" for line in _format_policy(sections, [*_list_gaps(cluster, unknown)]))
    read = policies.read(result)
    if isinstance(read, policies.Rejected):
        raise output.UnreadableError(
            f"the policy that the cluster shows is not valid: {'; '.join(map(str, read.errors[:3]))}; begin with a"
            f" profile: --cloud NAME; {profiles.format_names()}"
        )
    return result


# --- sections -----------------------------------------------------------------------------------------------


def _write_shape(members: Sequence[tuple[node_views.Node, matching.Match]], cluster: Cluster) -> Section:
    """Return the section of nodes with the same fabric of a profile."""
    first = members[0][1]
    profile = first.shape.profile
    nodes = [node for node, _ in members]
    titles = dict.fromkeys(match.shape.title for _, match in members)
    missing = collections.Counter(need for _, match in members for need in match.missing)
    comments = [
        f"{name_nodes(nodes)}: {text.join_first(map(str, first.present), 6)}.",
        f"From the profile {profile.name}: {'; '.join(titles)}.",
        *_describe(profile),
        *[
            f"NOT KNOWN: the nodes do not tell it from {title}: --cloud {profile.name} prints both."
            for title in first.equals
        ],
        *_describe_missing(missing, len(members)),
        *_describe_unused(first.shape, members[0][0], cluster),
    ]
    lines = profiles.read_fabric_text(profile, first.shape.fabric_name)[1:]
    pools = frozenset(rail.resource for rail in first.shape.fabric.rails if rail.resource)
    return Section(
        first.shape.fabric_name,
        profile.name,
        nodes,
        lines,
        comments,
        profile.policy.document.accelerators,
        pools,
        profiles.read_shapes_text(profile),
    )


def _describe_missing(missing: collections.Counter[matching.Need], nodes: int) -> Iterator[str]:
    for need, count in missing.items():
        where = "" if count == nodes else " on " + text.format_count(nodes, "node", part=count)
        yield f"MISSING{where}: {need}."


def _describe_unused(shape: profiles.Shape, node: node_views.Node, cluster: Cluster) -> Iterator[str]:
    """Say that NICs are also in slices, if the profile takes them from device plugins."""
    offering = list_claimed(node, cluster)
    if offering and shape.fabric.claims is None:
        yield f"NOT USED: the ResourceSlices of driver {', '.join(offering)}, because the profile has device plugins."


def _describe(profile: profiles.Profile) -> list[str]:
    return [
        f"The values are those of {profile.source}.",
        f"The site installs {profile.installs}.",
        f"Not verified: {profile.unverified}.",
    ]


# --- the document -------------------------------------------------------------------------------------------


def _format_policy(sections: Sequence[Section], gaps: Sequence[str]) -> Iterator[str]:
    named = _choose_names(sections)
    largest = max(named, key=lambda name: len(named[name].nodes))
    accelerators = list(dict.fromkeys(name for section in sections for name in section.accelerators))
    yield from _format_comments([_FIRST, *gaps], "")
    yield from _HEAD.splitlines()
    yield f"defaultFabric: {largest}" + ("  # that of most nodes: jobs on others name theirs" if len(named) > 1 else "")
    if accelerators:
        yield f"accelerators: [{', '.join(accelerators)}]"
    yield "fabrics:"
    yield from _format_comments(_list_common_pools(named), "  ")
    for name, section in named.items():
        yield from _format_comments(section.comments, "  ")
        yield f"  {name}:"
        yield from section.lines
    shapes = {section.origin: section.shapes for section in sections if section.shapes}
    if shapes:
        yield "nodeShapes:"
        yield from (line for lines in shapes.values() for line in lines)


def _list_common_pools(named: Mapping[str, Section]) -> Iterator[str]:
    """Say which resources do not tell the nodes of two fabrics apart."""
    by_fabrics: dict[str, list[str]] = {}
    for pool in sorted({pool for section in named.values() for pool in section.pools}):
        sharing = [name for name, section in named.items() if pool in section.pools]
        if len(sharing) > 1:
            by_fabrics.setdefault(", ".join(sharing), []).append(pool)
    for fabrics, pools in by_fabrics.items():
        what = f"{pools[0]} is a resource" if len(pools) == 1 else f"{text.join_first(pools, 3)} are resources"
        yield f"{what} of {fabrics}: jobs must select their nodes, as by instance type."


def _choose_names(sections: Sequence[Section]) -> dict[str, Section]:
    """Return the sections by the names of their fabrics, with that of the profile where two are equal."""
    counts = collections.Counter(section.name for section in sections)
    return {
        section.name if counts[section.name] == 1 else f"{section.origin}-{section.name}": section
        for section in sections
    }


def _format_comments(comments: Iterable[str], indent: str) -> Iterator[str]:
    for comment in comments:
        start = f"{indent}# "
        yield from textwrap.wrap(
            re.sub(r"\s+", " ", comment),
            _WIDTH,
            initial_indent=start,
            subsequent_indent=f"{start}  ",
            break_on_hyphens=False,
        )


def _list_gaps(cluster: Cluster, unknown: Sequence[Section]) -> Iterator[str]:
    if cluster.unread:
        yield f"NOT READ, because you may not list them: {', '.join(sorted(cluster.unread))}."
    for section in unknown:
        yield f"NO FABRIC for {_describe_unknown(section)}."


def _describe_unknown(section: Section) -> str:
    return f"{name_nodes(section.nodes)}: {'; '.join(section.comments)}"


def _describe_nothing(cluster: Cluster, unknown: Sequence[Section]) -> str:
    problem = "; ".join(map(_describe_unknown, unknown[:3])) or (
        f"none of {text.format_count(len(cluster.nodes), 'node')} has an accelerator or the labels of a profile"
    )
    unread = f"; you may not list {', '.join(sorted(cluster.unread))}" if cluster.unread else ""
    return (
        f"the cluster shows no fabric: {problem}{unread}. Install the device plugin or DRA driver of the NICs, or begin"
        f" with a profile: railwright policy init --cloud NAME; {profiles.format_names()}"
    )
