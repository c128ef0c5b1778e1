"""Finds the profile of each node: the shape whose labels the node has, and of which most is in the cluster.

Reads the objects of a cluster that show its networks: nodes, slices, device classes and networks.
"""

import enum
import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.cli.clouds import profiles
from railwright.cluster import client as clients
from railwright.cluster import errors, failures, watch_wire
from railwright.fabric import names, node_views, quantity, views
from railwright.fabric.claims import objects, slices
from railwright.fabric.policy import claimed_rails, model, presets

_NOT_FOUND, _FORBIDDEN = 404, 403
_TYPE = re.compile(r'"type"\s*:\s*"([\w.-]{1,63})"')  # of a CNI plugin


class Kind(enum.StrEnum):
    """A kind of objects that is read."""

    NODE = "Node"
    NETWORK = "NetworkAttachmentDefinition"
    GKE_NETWORK = "Network"  # of networking.gke.io, which items of the annotation below name
    DEVICE_CLASS = "DeviceClass"
    SLICE = "ResourceSlice"


GKE_INTERFACES = "networking.gke.io/interfaces"


class _NetworkSpec(views.View, frozen=True):
    """spec of a NetworkAttachmentDefinition."""

    config: str = ""


class Network(views.NetworkAttachmentDefinition, frozen=True):
    """A NetworkAttachmentDefinition with its configuration."""

    spec: _NetworkSpec = _NetworkSpec()

    @property
    def resource(self) -> str:
        """The resource in its annotation, "" if there is none."""
        return self.metadata.annotations.get(names.NAD_RESOURCE_NAME, "")

    @property
    def plugins(self) -> frozenset[str]:
        """The types of the CNI plugins in its configuration."""
        return frozenset(_TYPE.findall(self.spec.config))


class Cluster(msgspec.Struct, frozen=True):
    """The objects of a cluster. `unread` has the kinds that the caller may not list."""

    nodes: Sequence[node_views.Node] = ()
    networks: Mapping[str, Network] = {}  # by NAMESPACE/NAME
    gke_networks: Sequence[str] = ()
    device_classes: Mapping[str, objects.DeviceClass] = {}
    devices: Mapping[str, Sequence[slices.OfferedDevice]] = {}  # by node
    unread: frozenset[Kind] = frozenset()


VIEWS: Mapping[Kind, tuple[str, Any]] = {
    Kind.NODE: ("/api/v1/nodes", node_views.Node),
    Kind.NETWORK: ("/apis/k8s.cni.cncf.io/v1/network-attachment-definitions", Network),
    Kind.GKE_NETWORK: ("/apis/networking.gke.io/v1/networks", views.NetworkAttachmentDefinition),
    Kind.DEVICE_CLASS: ("/apis/resource.k8s.io/v1/deviceclasses", objects.DeviceClass),
    Kind.SLICE: ("/apis/resource.k8s.io/v1/resourceslices", objects.ResourceSlice),
}


async def read(client: clients.Client) -> Cluster:
    """Return the objects; none of kinds that do not exist. Raise ClusterError, also if nodes cannot be listed."""
    lists: dict[Kind, Sequence[Any]] = {}
    unread = set()
    for kind, (path, view) in VIEWS.items():
        try:
            lists[kind] = await watch_wire.list_objects(client, path, view)
        except errors.ApiError as error:
            if kind is Kind.NODE or error.status not in (_NOT_FOUND, _FORBIDDEN):
                raise
            if error.status == _FORBIDDEN:
                unread.add(kind)
        except watch_wire.UNREADABLE as error:
            raise failures.build_foreign(client.host, path, str(error)) from None
    return build(lists, frozenset(unread))


def build(lists: Mapping[Kind, Sequence[Any]], unread: frozenset[Kind] = frozenset()) -> Cluster:
    """Return a cluster with these objects."""
    index = slices.SliceIndex()
    index.replace(lists.get(Kind.SLICE, ()))
    devices: dict[str, list[slices.OfferedDevice]] = {}
    for device in index.devices.values():
        devices.setdefault(device.node, []).append(device)
    return Cluster(
        nodes=lists.get(Kind.NODE, ()),
        networks={network.metadata.full_name: network for network in lists.get(Kind.NETWORK, ())},
        gke_networks=sorted(item.metadata.name for item in lists.get(Kind.GKE_NETWORK, ())),
        device_classes={item.metadata.name: item for item in lists.get(Kind.DEVICE_CLASS, ())},
        devices=devices,
        unread=unread,
    )


def count(node: node_views.Node, resource: str) -> int:
    """Return how much of a resource a node has, healthy or not."""
    amounts: Mapping[str, views.RawQuantity] = {**node.status.allocatable, **node.status.capacity}
    return quantity.read_units(amounts.get(resource, 0))


def list_extended(node: node_views.Node) -> dict[str, int]:
    """Return the extended resources of a node, those with a domain, and their amounts."""
    resources = sorted({*node.status.capacity, *node.status.allocatable})
    amounts = {name: count(node, name) for name in resources if "/" in name}
    return {name: amount for name, amount in amounts.items() if amount}


# --- the shape of a node ------------------------------------------------------------------------------------


ACCELERATORS = ("nvidia.com/gpu", "aliyun.com/gpu", "amd.com/gpu")
_RESOURCE, _LABEL = "resource", "node label"
_GPU_DRIVER = "gpu.nvidia.com"
_WHOLE_GPU = ("gpu", None)  # beside `mig`, a part of one, and `vfio`, the same one for a virtual machine


class Need(NamedTuple):
    """A need of a fabric: `amount` of a resource on each node, a label of the nodes, or an object.

    The name of a ResourceSlice is that of its driver.
    """

    kind: str
    name: str
    amount: int = 1

    def __str__(self) -> str:
        """Return the need for people."""
        if self.kind == _RESOURCE:
            return f"{self.name}: {self.amount}"
        return f"{self.kind} {'of driver ' if self.kind == Kind.SLICE else ''}{self.name}"


class Match(msgspec.Struct, frozen=True):
    """The shape of a node: what shows it, and what of its fabric is missing."""

    shape: profiles.Shape
    present: Sequence[Need]
    missing: Sequence[Need]
    equals: Sequence[str] = ()  # titles of other shapes that fit as well


def match_nodes(cluster: Cluster, shapes: Sequence[profiles.Shape]) -> list[tuple[node_views.Node, Match | None]]:
    """Return each node with the shape of which least is missing, then of which most is there; None if none fits.

    A shape without labels fits only nodes with all that its fabric needs.
    """
    needs = [(shape, list_needs(shape.fabric)) for shape in shapes]
    matches: list[tuple[node_views.Node, Match | None]] = []
    for node in cluster.nodes:
        fitting = [match for row in needs if (match := _match(*row, node, cluster)) is not None]
        fitting.sort(key=_rate)
        equals = [
            match.shape.title
            for match in fitting[1:]
            if _rate(match) == _rate(fitting[0]) and match.shape.fabric != fitting[0].shape.fabric
        ]
        matches.append((node, msgspec.structs.replace(fitting[0], equals=equals) if fitting else None))
    return matches


def _rate(match: Match) -> tuple[int, int]:
    """Return the order of shapes that fit: least first."""
    return len(match.missing), -len(match.present)


def _match(shape: profiles.Shape, needs: Sequence[Need], node: node_views.Node, cluster: Cluster) -> Match | None:
    if not _has_labels(node.metadata.labels, shape.labels):
        return None
    gpus = count_gpus(node, cluster)
    if gpus and shape.fabric.gpus_per_node not in (None, gpus):
        return None
    readable = [need for need in needs if need.kind not in cluster.unread]
    present = [need for need in readable if _has(need, node, cluster)]
    missing = [need for need in readable if need not in present]
    if not shape.labels and (missing or not gpus):
        return None
    labels = [Need(_LABEL, f"{key}={node.metadata.labels[key]}") for key in shape.labels]
    return Match(shape, [*labels, *present], missing)


def count_accelerators(node: node_views.Node) -> int:
    """Return the number of accelerators that device plugins offer."""
    return sum(count(node, name) for name in ACCELERATORS)


def count_gpus(node: node_views.Node, cluster: Cluster) -> int:
    """Return the accelerators that device plugins offer; if there are none, the whole GPUs in slices."""
    return count_accelerators(node) or sum(
        device.id.driver == _GPU_DRIVER and device.get_value(f"{_GPU_DRIVER}/type") in _WHOLE_GPU
        for device in cluster.devices.get(node.metadata.name, ())
    )


def _has_labels(labels: Mapping[str, str], patterns: profiles.Labels) -> bool:
    return all(
        key in labels and any(fnmatch.fnmatchcase(labels[key], pattern) for pattern in values)
        for key, values in patterns.items()
    )


def list_needs(fabric: model.Fabric) -> list[Need]:
    """Return what pods of a fabric need, and the labels by which its gangs are placed."""
    needs: list[Need] = []
    if fabric.claims is not None:
        driver = claimed_rails.find_driver(fabric.claims)
        needs += [Need(Kind.DEVICE_CLASS, fabric.claims.device_class), Need(Kind.SLICE, driver.name)]
        if fabric.claims.accelerators is not None:
            needs.append(Need(Kind.DEVICE_CLASS, fabric.claims.accelerators.device_class))
    else:
        pools = [rail.resource for rail in fabric.rails if rail.resource]
        needs += [Need(_RESOURCE, pool, fabric.count_devices(pools.count(pool))) for pool in dict.fromkeys(pools)]
    networks = dict.fromkeys(rail.network for rail in fabric.rails if rail.network)
    needs += [Need(Kind.NETWORK, network) for network in networks]
    annotation = fabric.network_annotation
    if annotation is not None and annotation.key == GKE_INTERFACES:
        name = str(annotation.item.get("network"))
        needs += [Need(Kind.GKE_NETWORK, name.replace("{rail}", rail.name)) for rail in fabric.rails]
    return [*needs, *(Need(_LABEL, key) for key in presets.list_domain_keys(fabric.placement))]


def _has(need: Need, node: node_views.Node, cluster: Cluster) -> bool:
    match need.kind:
        case Kind.NETWORK:
            return need.name in cluster.networks
        case Kind.GKE_NETWORK:
            return need.name in cluster.gke_networks
        case Kind.DEVICE_CLASS:
            return need.name in cluster.device_classes
        case Kind.SLICE:
            return any(device.id.driver == need.name for device in cluster.devices.get(node.metadata.name, ()))
        case "resource":
            return count(node, need.name) >= need.amount
        case _:
            return need.name in node.metadata.labels
