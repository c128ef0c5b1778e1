"""Runs `railwright policy init`: prints a first policy from a cloud's profile, or from the objects of a cluster.

The policy has a fabric for each node shape of the cluster. Nodes that no profile fits get a rail for each network.
Comments name what is missing, left out or unknown.
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
from railwright.fabric.policy import compiled, model

ACCELERATORS = ("nvidia.com/gpu", "aliyun.com/gpu", "amd.com/gpu")
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
GKE_INTERFACES = "networking.gke.io/interfaces"
_HEAD = "apiVersion: railwright.io/v1alpha1"
_INTRO = "A first policy, by `railwright policy init`. Read the comments. To verify it once installed: railwright check"
_ADVICE = (
    "begin with the policy of a site that is like yours (docs/policies.md), or with a profile; to list the profiles: "
    "railwright policy init"
)
_MAX_RESOURCES = 32  # of a node in a message: each of eight NICs may have several
_PLUGIN = re.compile(r'"type"\s*:\s*"([\w.-]{1,63})"')
_INFINIBAND = frozenset({"ib-sriov", "ipoib"})  # types of CNI plugins
_MOVING = re.compile(r"sriov|host-device")  # in the types of plugins that give each pod a device of its own
_WIDTH = 118  # columns of comments


class Kind(enum.StrEnum):
    """A Kubernetes kind that `policy init` lists."""

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
    def pools(self) -> Mapping[str, Network]:
        """The first network of each resource that a network's annotation names, in natural order of the networks."""
        by_resource: dict[str, Network] = {}
        for network in sorted(self.objects[Kind.NETWORK], key=lambda item: item.metadata.full_name):
            if resource := network.metadata.annotations.get(names.NAD_RESOURCE_NAME):
                by_resource.setdefault(resource, network)
        return dict(sorted(by_resource.items(), key=lambda row: text.build_natural_key(row[1].metadata.full_name)))


class Need(NamedTuple):
    """What pods of a fabric need: an object in the cluster, or an amount of a resource on each node."""

    kind: Kind
    name: str
    amount: int = 0

    def __str__(self) -> str:
        """Return the need as text, such as `nvidia.com/mlx5_0: 1`."""
        return f"{self.name}: {self.amount}" if self.amount else f"{self.kind} {self.name}"


class ShapeMatch(NamedTuple):
    """A shape of a profile that fits a node, the unmet needs of its fabric, and the number of met needs."""

    profile: profiles.Profile
    shape: profiles.Shape
    missing: Sequence[Need]
    present: int


class _FabricSection(NamedTuple):
    """A fabric of the printed policy: its name, nodes, keys, and the comments above it."""

    name: str
    nodes: Sequence[node_views.Node]
    fabric: Mapping[str, Any]
    comments: Sequence[str]


def print_policy(arguments: argparse.Namespace) -> int:
    """Print the policy of a profile or of a cluster and return 0. Raise UnreadableError or ClusterError."""
    if not arguments.cloud and not arguments.from_cluster:
        listed = profiles.format_profiles()
        what = "the source of the policy is missing; give --from-cluster, or --cloud NAME with one of these profiles"
        raise output.UnreadableError(f"{what}:\n{listed}")
    chosen = [profiles.find_profile(arguments.cloud)] if arguments.cloud else profiles.list_profiles()
    if arguments.from_cluster:
        cluster = cluster_access.run_with_client(arguments, read_cluster, "a profile: --cloud NAME")
        sys.stdout.write(derive_policy(cluster, chosen))
    else:
        sys.stdout.write(format_profile_policy(chosen[0]))
    return output.OK


async def read_cluster(client: clients.Client) -> Cluster:
    """Return the cluster's objects of the kinds in `VIEWS`. Raise ClusterError, also if nodes may not be listed."""
    objects: dict[Kind, Sequence[Any] | None] = {}
    for kind, (path, view) in VIEWS.items():
        read_kind = watch_wire.list_objects if kind is Kind.NODE else cluster_access.list_if_allowed
        objects[kind] = await read_kind(client, path, view)
    unread = frozenset(kind for kind, listed in objects.items() if listed is None)
    return Cluster({kind: listed or [] for kind, listed in objects.items()}, unread)


def format_profile_policy(profile: profiles.Profile) -> str:
    """Return the YAML of a profile's policy, which has all its shapes, below comments on its origin."""
    titles = "; ".join(shape.title for shape in profile.shapes)
    comments = [
        _INTRO,
        f"From the profile {profile.name}: {titles}. Remove the fabrics of shapes that you do not have.",
        *profile.describe(),
    ]
    return "".join(f"{line}\n" for line in _format_comments(comments, "")) + profile.text


def derive_policy(cluster: Cluster, candidates: Sequence[profiles.Profile]) -> str:
    """Return the YAML of a policy for a cluster. Raise UnreadableError if no fabric can be derived from its nodes."""
    matched: dict[tuple[str, str], list[tuple[node_views.Node, ShapeMatch]]] = {}
    others: dict[tuple[object, ...], list[node_views.Node]] = {}
    for node in cluster.objects[Kind.NODE]:
        match, gpus = find_shape_match(node, cluster, candidates), _count_accelerators(node)
        if match is not None:
            matched.setdefault((match.profile.name, match.shape.fabric), []).append((node, match))
        elif gpus:
            others.setdefault((gpus, *(_list_rails(node, cluster) or _list_resources(node))), []).append(node)
    sections = [_build_shape_section(members) for members in matched.values()]
    gaps = [f"NOT READ, because you may not list them: {', '.join(sorted(cluster.unread))}."] if cluster.unread else []
    for nodes in others.values():
        if rails := _list_rails(nodes[0], cluster):
            sections.append(_build_network_section(nodes, rails, cluster))
        else:
            gaps.append(_describe_nodes_without_fabric(nodes, cluster))
    if not sections:
        count = text.format_count(len(cluster.objects[Kind.NODE]), "node")
        none = f"None of {count} has {' or '.join(ACCELERATORS)}; list others in `accelerators` of a policy."
        has_resources = any(_list_resources(members[0]) for members in others.values())
        unless = ", unless one of these resources is theirs," if has_resources else ","
        install = f"Install the device plugin or DRA driver of the NICs{unless} or"
        raise output.UnreadableError(
            f"no fabric can be derived from the cluster. {' '.join(gaps or [none])} {install} {_ADVICE}"
        )
    result = "".join(f"{line}\n" for line in _format_policy(sections, gaps))
    document = policies.read(result)
    if isinstance(document, policies.RejectedPolicy):
        raise output.UnreadableError(
            f"the policy derived from the cluster is not valid: {'; '.join(map(str, document.errors[:3]))}; {_ADVICE}"
        )
    return result


# --- nodes that a profile fits ------------------------------------------------------------------------------


def find_shape_match(
    node: node_views.Node, cluster: Cluster, candidates: Sequence[profiles.Profile]
) -> ShapeMatch | None:
    """Return the shape that fits a node with the fewest unmet needs, then with the most met needs; None if none fits.

    A shape that names no instance types fits a node with the cloud's label on which all needs of its fabric are met. If
    the shape names no label either, the node may not offer more devices than pods of the fabric request: surplus ones
    would stay unused, and show that the node belongs to another fabric.
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
            amounts = {need: _count_devices(node, need.name) for need in needs if need.amount}
            is_left = any(amount > need.amount for need, amount in amounts.items() if "shared" not in need.name)
            if not shape.instances and not shape.label and is_left:
                continue
            missing = [
                need
                for need in needs
                if (amounts[need] < need.amount if need.amount else need.name not in cluster.names[need.kind])
            ]
            if shape.instances or (gpus and not missing):
                matches.append(ShapeMatch(profile, shape, missing, len(needs) - len(missing)))
    return min(matches, key=lambda match: (len(match.missing), -match.present), default=None)


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


def _build_shape_section(members: Sequence[tuple[node_views.Node, ShapeMatch]]) -> _FabricSection:
    """Return the fabric of a profile's shape for the nodes that it fits, with a comment on each unmet need."""
    match, nodes = members[0][1], [node for node, _ in members]
    missing = collections.Counter(need for _, match in members for need in match.missing)
    comments = [
        (
            f"{_format_nodes(nodes)}: profile {match.profile.name}, {match.shape.title}. Each value explained: "
            f"railwright policy init --cloud {match.profile.name}"
        ),
        *match.profile.describe(),
    ]
    for need, count in missing.items():
        where = "" if count == len(nodes) else " on " + text.format_count(len(nodes), "node", part=count)
        comments.append(f"MISSING{where}: {need}.")
    fabric = yaml.safe_load(match.profile.text)["fabrics"][match.shape.fabric]
    return _FabricSection(match.shape.fabric, nodes, fabric, comments)


# --- nodes that no profile fits -----------------------------------------------------------------------------


def _list_rails(node: node_views.Node, cluster: Cluster) -> list[str]:
    """Return the rails of a node, each by its resource. Annotations of networks name the resources.

    A network whose CNI plugin moves a device into the pod has a rail for each device of the node. More than two devices
    for each accelerator are virtual functions: then as many rails as accelerators are divided evenly among these
    networks, and no network has more rails than the node has devices.
    """
    gpus = _count_accelerators(node)
    amounts = {name: amount for name in cluster.pools if (amount := _count_devices(node, name))}
    moved = [name for name in amounts if any(map(_MOVING.search, cluster.pools[name].plugins))]
    rails = {name: amounts[name] for name in moved}
    if sum(rails.values()) > 2 * gpus:
        rails = {name: min(amount, max(1, gpus // len(moved))) for name, amount in rails.items()}
    return [name for name in amounts for _ in range(rails.get(name, 1))]


def _build_network_section(nodes: Sequence[node_views.Node], rails: Sequence[str], cluster: Cluster) -> _FabricSection:
    """Return a fabric for nodes that no profile fits. `rails` has the resource of each rail."""
    networks = [cluster.pools[resource] for resource in rails]
    plugins = {plugin for network in networks for plugin in network.plugins}
    shared = set.intersection(*(set(node.metadata.labels) for node in nodes))
    preset = next((name for name, keys in compiled.DOMAINS.items() if keys[0] in shared), None)
    fabric: dict[str, Any] = {
        "transport": "infiniband" if plugins & _INFINIBAND else "roce",
        "rails": [
            {"name": f"rail{number}", "network": network.metadata.full_name, "resource": resource}
            for number, (network, resource) in enumerate(zip(networks, rails, strict=True))
        ],
        "security": {"capabilities": ["IPC_LOCK"]},
        "mounts": {"sharedMemory": "64Gi"},
    }
    if len(rails) > len(set(rails)):
        fabric |= {"gpusPerNode": _count_accelerators(nodes[0]), "railsPerPod": "proportional"}
    comments = [
        (
            f"{_format_nodes(nodes)}: no profile fits. The rails are the NetworkAttachmentDefinitions whose annotation "
            f"{names.NAD_RESOURCE_NAME} names a resource of these nodes. Remove those for storage or management. Where "
            "two have the same NICs, as shared devices and as virtual functions, remove one."
        ),
        (
            "Not known: whether the transport is roce or infiniband (`ibv_devinfo` on a node: link_layer); whether the "
            "nodes limit locked memory; if not, remove `security`. Names of devices are found in each pod."
        ),
    ]
    if unnamed := _describe_networks_without_resource(cluster):
        comments.append(f"NOT USED: {unnamed}.")
    if preset:
        fabric["placement"] = {"preset": preset}
    else:
        comments.append("Not known: placement.domains, the labels that name the switches of a node, closest first.")
    return _FabricSection("rdma", nodes, fabric, comments)


def _list_resources(node: node_views.Node) -> list[str]:
    """Return the extended resources of a node that are not accelerators."""
    return sorted({name for name in (*node.status.capacity, *node.status.allocatable) if "/" in name} - {*ACCELERATORS})


def _describe_nodes_without_fabric(nodes: Sequence[node_views.Node], cluster: Cluster) -> str:
    resources, unnamed = _list_resources(nodes[0]), _describe_networks_without_resource(cluster)
    has = f"; they have {text.join_first(resources, _MAX_RESOURCES)}" if resources else ""
    perhaps = f"Perhaps their rails are {unnamed}. " if unnamed else ""
    return (
        f"NO FABRIC for {_format_nodes(nodes)}: no profile fits, and no NetworkAttachmentDefinition names a resource "
        f"of them{has}. {perhaps}Write their fabric by hand: docs/policies.md has policies, docs/reference/policy.md "
        "has every key."
    )


def _describe_networks_without_resource(cluster: Cluster) -> str:
    """Return text that lists the networks without a resource annotation, as shared devices often have; "" if none."""
    unnamed = [
        network.metadata.full_name
        for network in cluster.objects[Kind.NETWORK]
        if not network.metadata.annotations.get(names.NAD_RESOURCE_NAME)
    ]
    listed = text.join_first(sorted(unnamed, key=text.build_natural_key), 8)
    return f"{listed}, without annotation {names.NAD_RESOURCE_NAME}" if unnamed else ""


# --- the document -------------------------------------------------------------------------------------------


def _format_policy(sections: Sequence[_FabricSection], gaps: Sequence[str]) -> Iterator[str]:
    named: dict[str, _FabricSection] = {}
    for section in sections:
        named[f"{section.name}-{len(named)}" if section.name in named else section.name] = section
    largest = max(named, key=lambda name: len(named[name].nodes))
    yield from _format_comments([_INTRO, *gaps], "")
    yield _HEAD
    yield f"defaultFabric: {largest}" + (
        "  # the fabric of most nodes; jobs for other nodes name theirs" if len(named) > 1 else ""
    )
    offered = {name for section in sections for name in ACCELERATORS if _count_devices(section.nodes[0], name)}
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


def _format_nodes(nodes: Sequence[node_views.Node]) -> str:
    return f"{text.format_count(len(nodes), 'node')} ({text.join_first([node.metadata.name for node in nodes], 2)})"


def _count_devices(node: node_views.Node, resource: str) -> int:
    """Return how many devices of a resource a node has, healthy or not."""
    amounts: Mapping[str, views.RawQuantity] = {**node.status.allocatable, **node.status.capacity}
    return quantity.read_units(amounts.get(resource, 0))


def _count_accelerators(node: node_views.Node) -> int:
    """Return how many accelerators a node has."""
    return sum(_count_devices(node, name) for name in ACCELERATORS)
