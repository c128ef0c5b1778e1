"""Runs `railwright policy init`: writes a first policy from a profile, or with a fabric for each node shape of a
cluster.

Nodes without a matching profile get a rail for each network. Comments list missing, omitted and unknown values.
"""

import argparse
import collections
import enum
import functools
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import yaml

from railwright.cli import cluster_access, output
from railwright.cli.clouds import profiles
from railwright.cluster import client as clients
from railwright.cluster import policies, watch_wire
from railwright.fabric import names, node_views, quantity, text, views
from railwright.fabric.policy import model, presets

ACCELERATORS = ("nvidia.com/gpu", "aliyun.com/gpu", "amd.com/gpu")
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
GKE_INTERFACES = "networking.gke.io/interfaces"
_HEAD = "apiVersion: railwright.io/v1alpha1"
_INTRO = "A first policy, by `railwright policy init`. Read the comments. When it is installed: railwright check"
_ADVICE = (
    "begin with the policy of a site that is like yours (docs/policies.md), or with a profile; to list the profiles: "
    "railwright policy init"
)
_PLUGIN = re.compile(r'"type"\s*:\s*"([\w.-]{1,63})"')
_INFINIBAND = frozenset({"ib-sriov", "ipoib"})  # types of CNI plugins
_MOVING = re.compile(r"sriov|host-device")  # in the types of plugins that give each pod a device of its own
_OTHER_ACCELERATOR = re.compile(r"gpu|npu|tpu|mlu|dcu|gcu|gaudi|ascend|neuron|/mig-", re.IGNORECASE)
_STORAGE = re.compile(r"storage|lustre|gpfs|ceph|weka|vast|nfs|mgmt|management", re.IGNORECASE)
_WIDTH = 118  # columns of comments


class Kind(enum.StrEnum):
    """A kind of objects that `policy init` reads."""

    NODE = "Node"
    NETWORK = "NetworkAttachmentDefinition"
    GKE_NETWORK = "Network"  # of networking.gke.io
    DEVICE_CLASS = "DeviceClass"


class Network(views.NetworkAttachmentDefinition, frozen=True):
    """A NetworkAttachmentDefinition, with its CNI configuration."""

    @property
    def plugins(self) -> Sequence[str]:
        """The types of the network's CNI plugins."""
        return _PLUGIN.findall((self.spec and self.spec.config) or "")


VIEWS: Mapping[Kind, tuple[str, Any]] = {
    Kind.NODE: ("/api/v1/nodes", node_views.Node),
    Kind.NETWORK: ("/apis/k8s.cni.cncf.io/v1/network-attachment-definitions", Network),
    Kind.GKE_NETWORK: ("/apis/networking.gke.io/v1/networks", views.NetworkAttachmentDefinition),
    Kind.DEVICE_CLASS: ("/apis/resource.k8s.io/v1/deviceclasses", views.NetworkAttachmentDefinition),
}


class Cluster(msgspec.Struct, frozen=True, dict=True):
    """The objects of a cluster by kind, and the kinds that the caller may not list."""

    objects: Mapping[Kind, Sequence[Any]]
    unread: frozenset[Kind] = frozenset()

    @functools.cached_property
    def names(self) -> Mapping[Kind, frozenset[str]]:
        """The names of the objects of each kind, as NAMESPACE/NAME if they have a namespace."""
        return {
            kind: frozenset(item.metadata.full_name.removeprefix("/") for item in items)
            for kind, items in self.objects.items()
        }

    @functools.cached_property
    def networks(self) -> Sequence[tuple[Network, str]]:
        """One network for each resource in networks' annotations, and all host-device networks without a resource."""
        by_resource: dict[str, Network] = {}
        unpooled = []
        for network in sorted(self.objects[Kind.NETWORK], key=lambda item: item.metadata.full_name):
            resource = network.metadata.annotations.get(names.NAD_RESOURCE_NAME, "")
            if resource:
                by_resource.setdefault(resource, network)
            elif "host-device" in network.plugins:
                unpooled.append((network, ""))
        pooled = [(network, resource) for resource, network in by_resource.items()]
        return sorted([*pooled, *unpooled], key=lambda row: text.build_natural_key(row[0].metadata.full_name))


class Need(NamedTuple):
    """A requirement of a fabric's pods: an object in the cluster, or an amount of a resource on each node."""

    kind: Kind
    name: str
    amount: int = 0

    def __str__(self) -> str:
        """Return the need as text, such as `nvidia.com/mlx5_0: 1`."""
        return f"{self.name}: {self.amount}" if self.amount else f"{self.kind} {self.name}"


class Match(NamedTuple):
    """A shape that fits a node, the unmet needs of its fabric, the number of met needs, and shapes that fit as well."""

    profile: profiles.Profile
    shape: profiles.Shape
    missing: Sequence[Need]
    present: int
    others: Sequence[str] = ()  # profile and title


class _Section(NamedTuple):
    """A fabric of the policy: its nodes, its keys, and comments about it."""

    name: str
    origin: str  # before the name where two fabrics have the same
    nodes: Sequence[node_views.Node]
    fabric: Mapping[str, Any]
    comments: Sequence[str]


def print_policy(arguments: argparse.Namespace) -> int:
    """Print the policy of a profile or of a cluster and return 0. Raise UnreadableError or ClusterError."""
    if not arguments.cloud and not arguments.from_cluster:
        listed = profiles.format_list()
        what = "the source of the policy is missing; give --from-cluster, or --cloud NAME with one of these profiles"
        raise output.UnreadableError(f"{what}:\n{listed}")
    chosen = [profiles.find(arguments.cloud)] if arguments.cloud else profiles.list_profiles()
    if arguments.from_cluster:
        cluster = cluster_access.run(arguments, read, "a profile: --cloud NAME")
        sys.stdout.write(write_cluster(cluster, chosen))
    else:
        sys.stdout.write(write_profile(chosen[0]))
    return output.OK


async def read(client: clients.Client) -> Cluster:
    """Return the objects; none of kinds that do not exist. Raise ClusterError, also if nodes cannot be listed."""
    objects: dict[Kind, Sequence[Any] | None] = {}
    for kind, (path, view) in VIEWS.items():
        read_kind = watch_wire.list_objects if kind is Kind.NODE else cluster_access.list_allowed
        objects[kind] = await read_kind(client, path, view)
    unread = frozenset(kind for kind, listed in objects.items() if listed is None)
    return Cluster({kind: listed or [] for kind, listed in objects.items()}, unread)


def write_profile(profile: profiles.Profile) -> str:
    """Return the policy of a profile, with all its shapes."""
    titles = "; ".join(shape.title for shape in profile.shapes)
    comments = [
        _INTRO,
        f"From the profile {profile.name}: {titles}. Remove the fabrics of shapes that you do not have.",
        *profile.describe(),
    ]
    return "".join(f"{line}\n" for line in _format_comments(comments, "")) + profile.text


def write_cluster(cluster: Cluster, candidates: Sequence[profiles.Profile]) -> str:
    """Return a policy for a cluster. Raise UnreadableError if no fabric can be derived from its nodes."""
    matched: dict[tuple[str, str], list[tuple[node_views.Node, Match]]] = {}
    others: dict[tuple[str, ...], list[node_views.Node]] = {}
    for node in cluster.objects[Kind.NODE]:
        match = find_match(node, cluster, candidates)
        if match is not None:
            matched.setdefault((match.profile.name, match.shape.fabric), []).append((node, match))
        elif _count_accelerators(node) or _list_uncounted(node, cluster):
            rails = [row for form in _list_forms(node, cluster) for row in form]
            named = [f"{network.metadata.full_name} {resource}" for network, resource in rails]
            key = (str(_count_accelerators(node)), *(named or _list_resources(node)))
            others.setdefault(key, []).append(node)
    sections = [_write_shape(members) for members in matched.values()]
    gaps = [f"NOT READ, because you may not list them: {', '.join(sorted(cluster.unread))}."] if cluster.unread else []
    for nodes in others.values():
        written = _write_networks(nodes, cluster)
        sections += written
        gaps += [] if written else [_describe_unknown(nodes, cluster)]
    if not sections:
        count = text.format_count(len(cluster.objects[Kind.NODE]), "node")
        none = f"None of {count} has {' or '.join(ACCELERATORS)}; list others in `accelerators` of a policy."
        is_counted = not others or any(_count_accelerators(nodes[0]) for nodes in others.values())
        install = "Install the device plugin or DRA driver of the NICs, or" if is_counted else "Or"
        raise output.UnreadableError(f"the cluster shows no fabric. {' '.join(gaps or [none])} {install} {_ADVICE}")
    result = "".join(f"{line}\n" for line in _format_policy(sections, gaps))
    document = policies.read(result)
    if isinstance(document, policies.Rejected):
        raise output.UnreadableError(
            f"the policy that the cluster shows is not valid: {'; '.join(map(str, document.errors[:3]))}; {_ADVICE}"
        )
    return result


# --- nodes that a profile fits ------------------------------------------------------------------------------


def find_match(node: node_views.Node, cluster: Cluster, candidates: Sequence[profiles.Profile]) -> Match | None:
    """Return the shape with the fewest unmet needs, then with the most met ones; None if none fits.

    A shape without instance types fits only nodes with its cloud's label and all needs of its fabric. Without that
    label too, device plugins may offer no more devices than its pods request, because the rest would stay unused.
    """
    matches = []
    for profile in candidates:
        for shape in profile.shapes:
            fabric = profile.policy.document.fabrics[shape.fabric]
            gpus = _count_accelerators(node)
            labels = node.metadata.labels
            is_other = gpus and fabric.gpus_per_node not in (None, gpus)
            is_elsewhere = shape.label not in labels if shape.label else False
            if is_other or is_elsewhere or (shape.instances and labels.get(INSTANCE_TYPE) not in shape.instances):
                continue
            needs = [need for need in list_needs(fabric) if need.kind not in cluster.unread]
            amounts = {need: _get_amount(node, need.name) for need in needs if need.amount}
            is_left = any(amount > need.amount for need, amount in amounts.items() if "shared" not in need.name)
            if not shape.instances and not shape.label and is_left:
                continue
            missing = [
                need
                for need in needs
                if (amounts[need] < need.amount if need.amount else need.name not in cluster.names[need.kind])
            ]
            if shape.instances or (gpus and not missing):
                matches.append(Match(profile, shape, missing, len(needs) - len(missing)))
    best = min(matches, key=lambda match: (len(match.missing), -match.present), default=None)
    others = [f"{one.profile.name}, {one.shape.title}" for one in matches if one is not best and not one.missing]
    return best and best._replace(others=others)


def list_needs(fabric: model.Fabric) -> list[Need]:
    """Return the resources, networks and DeviceClasses that the pods of a fabric request."""
    needs: list[Need] = []
    if fabric.claims is not None:
        needs.append(Need(Kind.DEVICE_CLASS, fabric.claims.device_class))
    else:
        pools = [rail.resource for rail in fabric.rails if rail.resource]
        needs += [Need(Kind.NODE, pool, fabric.count_devices(pools.count(pool))) for pool in dict.fromkeys(pools)]
    networks = dict.fromkeys(rail.network for rail in fabric.rails if rail.network)
    needs += [Need(Kind.NETWORK, network) for network in networks]
    if GKE_INTERFACES in fabric.annotations:
        needs += [Need(Kind.GKE_NETWORK, rail.name) for rail in fabric.rails]
    return needs


def _write_shape(members: Sequence[tuple[node_views.Node, Match]]) -> _Section:
    """Return the section for nodes with the same shape of a profile."""
    match, nodes = members[0][1], [node for node, _ in members]
    missing = collections.Counter(need for _, match in members for need in match.missing)
    comments = [
        (
            f"{_name_nodes(nodes)}: profile {match.profile.name}, {match.shape.title}. With a comment on each value: "
            f"railwright policy init --cloud {match.profile.name}"
        ),
        *match.profile.describe(),
        *(f"These nodes also meet the needs of profile {other}." for other in match.others),
    ]
    for need, count in missing.items():
        where = "" if count == len(nodes) else " on " + text.format_count(len(nodes), "node", part=count)
        comments.append(f"MISSING{where}: {need}.")
    fabric = yaml.safe_load(match.profile.text)["fabrics"][match.shape.fabric]
    return _Section(match.shape.fabric, match.profile.name, nodes, fabric, comments)


# --- nodes that no profile fits -----------------------------------------------------------------------------


_Rails = Sequence[tuple[Network, str]]
"""Network and resource of each rail; the resource is "" if no device plugin counts the devices."""


def _list_forms(node: node_views.Node, cluster: Cluster) -> list[_Rails]:
    """Return the rails of a node: by shared devices, and by devices that each belong to one pod.

    Devices belong to one pod if the network's plugin moves them into the pod. Such a network is returned once for each
    device. A node with more than two of them for each accelerator has virtual functions: its networks are returned once
    for each accelerator.
    """
    gpus = _count_accelerators(node)
    networks = [(network, resource) for network, resource in cluster.networks if not _is_storage(network, resource)]
    pooled = [(network, resource) for network, resource in networks if _get_amount(node, resource)]
    moved = [row for row in pooled if any(map(_MOVING.search, row[0].plugins))]
    amounts = {resource: _get_amount(node, resource) for _, resource in moved}
    if sum(amounts.values()) > 2 * gpus:
        amounts = dict.fromkeys(amounts, max(1, gpus // len(moved)))
    forms = [
        [row for row in pooled if row not in moved],
        [row for row in moved for _ in range(amounts[row[1]])],
        [(network, "") for network, resource in networks if gpus and not resource and not pooled],
    ]
    return [form for form in forms if form]


def _is_storage(network: Network, resource: str) -> bool:
    return bool(_STORAGE.search(network.metadata.name) or _STORAGE.search(resource))


def _write_networks(nodes: Sequence[node_views.Node], cluster: Cluster) -> list[_Section]:
    """Return the sections for nodes without a matching profile: one, or one for each form of their devices."""
    forms = _list_forms(nodes[0], cluster)
    if len(forms) < 2:
        return [_write_rails("rdma", nodes, rails, cluster) for rails in forms]
    choice = (
        "These nodes offer devices in two forms: those of `shared` serve several pods at a time, each of `exclusive` "
        "one pod. If they are the same NICs, remove the fabric that you do not use. If not, join the rails of both."
    )
    shared, exclusive = (
        _write_rails(name, nodes, rails, cluster) for name, rails in zip(("shared", "exclusive"), forms, strict=True)
    )
    return [shared._replace(comments=[choice, *shared.comments]), exclusive]


def _write_rails(name: str, nodes: Sequence[node_views.Node], rails: _Rails, cluster: Cluster) -> _Section:
    """Return a section with a rail for each network and device."""
    gpus = _count_accelerators(nodes[0])
    requested = collections.Counter(resource for _, resource in rails)
    offered = {resource: _get_amount(nodes[0], resource) for resource in requested}
    plugins = {plugin for network, _ in rails for plugin in network.plugins}
    shared = set.intersection(*(set(node.metadata.labels) for node in nodes))
    preset = next((name for name, keys in presets.DOMAINS.items() if keys[0] in shared), None)
    fabric: dict[str, Any] = {
        "transport": "infiniband" if plugins & _INFINIBAND else "roce",
        "rails": [
            {"name": f"rail{number}", "network": network.metadata.full_name}
            | ({"resource": resource} if resource else {})
            for number, (network, resource) in enumerate(rails)
        ],
        "security": {"capabilities": ["IPC_LOCK"]},
        "mounts": {"sharedMemory": "64Gi"},
    }
    found_by = f"whose annotation {names.NAD_RESOURCE_NAME} names a resource of these nodes"
    if "" in requested:
        fabric |= {"gpusPerNode": gpus, "mounts": {"sharedMemory": "64Gi", "devInfiniband": True}}
        found_by = (
            "of the plugin host-device. No device plugin counts their devices: two pods on a node get in each other's "
            "way, so let each pod request all GPUs of a node. /dev/infiniband is the node's. Not known: whether all "
            "these nodes have the devices that the networks name"
        )
    elif len(rails) > len(offered):
        fabric |= {"gpusPerNode": gpus, "railsPerPod": "proportional"}
    comments = [f"{_name_nodes(nodes)}: no profile fits. The rails are the NetworkAttachmentDefinitions {found_by}."]
    more = [f"{requested[name]} of {count} {name}" for name, count in offered.items() if count > requested[name]]
    if more:
        comments.append(f"A pod with all accelerators of a node gets a part of the devices: {', '.join(more)}.")
    storage = [network.metadata.full_name for network, resource in cluster.networks if _is_storage(network, resource)]
    if storage:
        comments.append(f"LEFT OUT: {', '.join(storage)}, by their names networks for storage or management.")
    if uncounted := _list_uncounted(nodes[0], cluster):
        comments.append(f"NOT COUNTED as accelerators, by `accelerators` of the policy: {', '.join(uncounted)}.")
    if unnamed := _describe_unnamed(cluster):
        comments.append(f"NOT USED: {unnamed}.")
    comments.append(
        "Not known: whether the transport is roce or infiniband (`ibv_devinfo` on a node: link_layer); whether the "
        "nodes limit locked memory, else remove security. Names of devices are found in each pod."
    )
    if preset:
        fabric["placement"] = {"preset": preset}
    else:
        comments.append("Not known: placement.domains, the labels that name the switches of a node, closest first.")
    return _Section(name, "networks", nodes, fabric, comments)


def _list_resources(node: node_views.Node) -> list[str]:
    """Return the extended resources of a node that are not accelerators."""
    return sorted({name for name in (*node.status.capacity, *node.status.allocatable) if "/" in name} - {*ACCELERATORS})


def _list_uncounted(node: node_views.Node, cluster: Cluster) -> list[str]:
    """Return resources of a node that are not in ACCELERATORS, with names like accelerators or shares of them."""
    rails = {resource for _, resource in cluster.networks}
    return [
        name
        for name in _list_resources(node)
        if _OTHER_ACCELERATOR.search(name)
        and name not in rails
        and not name.startswith("rdma/")
        and _get_amount(node, name)
    ]


def _describe_unknown(nodes: Sequence[node_views.Node], cluster: Cluster) -> str:
    by_hand = "Write their fabric by hand: docs/policies.md has policies, docs/reference/policy.md every key."
    if not _count_accelerators(nodes[0]):
        return (
            f"NO FABRIC for {_name_nodes(nodes)}, with {text.join_first(_list_uncounted(nodes[0], cluster), 8)} and "
            f"none of {', '.join(ACCELERATORS)}. If pods train on these, list them in `accelerators` of the policy; "
            f"MIG slices and units of a plugin for sharing are parts of an accelerator. {by_hand}"
        )
    resources = _list_resources(nodes[0])
    has = f"; they have {text.join_first(resources, 8)}" if resources else ""
    unnamed = _describe_unnamed(cluster)
    perhaps = f"Perhaps their rails are {unnamed}. " if unnamed else ""
    return (
        f"NO FABRIC for {_name_nodes(nodes)}: no profile fits, and no NetworkAttachmentDefinition names a resource of "
        f"them{has}. {perhaps}{by_hand}"
    )


def _describe_unnamed(cluster: Cluster) -> str:
    """Return the networks without a resource, as shared devices often have; "" if there are none."""
    used = {network.metadata.full_name for network, _ in cluster.networks}
    unnamed = [
        network.metadata.full_name
        for network in cluster.objects[Kind.NETWORK]
        if not (network.metadata.annotations.get(names.NAD_RESOURCE_NAME) or _is_storage(network, ""))
        and network.metadata.full_name not in used
    ]
    listed = text.join_first(sorted(unnamed, key=text.build_natural_key), 8)
    return f"{listed}, without annotation {names.NAD_RESOURCE_NAME}" if unnamed else ""


# --- the document -------------------------------------------------------------------------------------------


def _format_policy(sections: Sequence[_Section], gaps: Sequence[str]) -> Iterator[str]:
    named: dict[str, _Section] = {}
    for section in sections:
        is_taken = sum(other.name == section.name for other in sections) > 1
        name = f"{section.origin}-{section.name}" if is_taken else section.name
        named[f"{name}-{len(named)}" if name in named else name] = section
    largest = max(named, key=lambda name: len(named[name].nodes))
    yield from _format_comments([_INTRO, *gaps], "")
    yield _HEAD
    yield f"defaultFabric: {largest}" + (
        "  # the fabric of most nodes; jobs for other nodes name theirs" if len(named) > 1 else ""
    )
    offered = {name for section in sections for name in ACCELERATORS if _get_amount(section.nodes[0], name)}
    if offered - {ACCELERATORS[0]}:  # the policy's default
        yield f"accelerators: [{', '.join(sorted(offered))}]"
    yield "fabrics:"
    for name, section in named.items():
        yield from _format_comments(section.comments, "  ")
        yield f"  {name}:"
        # None: lists and mappings of plain values in one line
        lines = yaml.safe_dump(section.fabric, default_flow_style=None, sort_keys=False, width=_WIDTH).splitlines()
        yield from (f"    {line}" for line in lines)


def _format_comments(comments: Iterable[str], indent: str) -> Iterator[str]:
    start = f"{indent}# "
    for comment in comments:
        yield from textwrap.wrap(
            re.sub(r"\s+", " ", comment),
            _WIDTH,
            initial_indent=start,
            subsequent_indent=f"{start}  ",
            break_on_hyphens=False,
        )


def _name_nodes(nodes: Sequence[node_views.Node]) -> str:
    return f"{text.format_count(len(nodes), 'node')} ({text.join_first([node.metadata.name for node in nodes], 2)})"


def _get_amount(node: node_views.Node, resource: str) -> int:
    """Return the amount of a resource on a node, healthy or not."""
    amounts: Mapping[str, views.RawQuantity] = {**node.status.allocatable, **node.status.capacity}
    return quantity.read_units(amounts.get(resource, 0))


def _count_accelerators(node: node_views.Node) -> int:
    """Return the number of accelerators that device plugins offer."""
    return sum(_get_amount(node, name) for name in ACCELERATORS)
