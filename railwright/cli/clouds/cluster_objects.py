"""Reads the objects of a cluster that show its networks: nodes, slices, device classes and networks."""

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors, failures, watch_wire
from railwright.fabric import names, node_views, quantity, views
from railwright.fabric.claims import objects, slices

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
    def name(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

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
        networks={network.name: network for network in lists.get(Kind.NETWORK, ())},
        gke_networks=sorted(item.metadata.name for item in lists.get(Kind.GKE_NETWORK, ())),
        device_classes={item.metadata.name: item for item in lists.get(Kind.DEVICE_CLASS, ())},
        devices=devices,
        unread=unread,
    )


def count(node: node_views.Node, resource: str) -> int:
    """Return how much of a resource a node has, healthy or not."""
    amounts: Mapping[str, views.RawQuantity] = {**node.status.allocatable, **node.status.capacity}
    try:
        return quantity.parse_units(amounts.get(resource, 0))
    except quantity.InvalidQuantityError:
        return 0


def list_extended(node: node_views.Node) -> dict[str, int]:
    """Return the extended resources of a node, those with a domain, and their amounts."""
    resources = sorted({*node.status.capacity, *node.status.allocatable})
    amounts = {name: count(node, name) for name in resources if "/" in name}
    return {name: amount for name, amount in amounts.items() if amount}
