"""Nodes with what kubelet reports and what ResourceSlices offer, as placement counts it."""

import msgspec

from railwright.cli.checking import snapshots
from railwright.fabric import node_views, resources
from railwright.fabric.claims import inventory
from railwright.fabric.policy import claimed_resources

SOURCES = ("device-classes", "device-slices")
"""Sources that a row uses if it counts devices of nodes."""


def list_nodes(snapshot: snapshots.ClusterSnapshot) -> tuple[node_views.Node, ...]:
    """Return the nodes. Devices of slices are counted like those of device plugins, which take precedence."""
    nodes: tuple[node_views.Node, ...] = snapshot.get_all("nodes")
    if not snapshot.get_all("device-slices"):
        return nodes
    devices = inventory.Inventory()
    devices.replace_classes(snapshot.get_all("device-classes"))
    devices.replace_slices(snapshot.get_all("device-slices"))
    if snapshot.policy is not None:
        devices.replace_claim_resources(claimed_resources.list_claim_resources(snapshot.policy))
    return tuple(_complete(node, devices) for node in nodes)


def list_accelerated(snapshot: snapshots.ClusterSnapshot) -> tuple[node_views.Node, ...]:
    """Return the nodes with at least one accelerator, healthy or not."""
    names = snapshots.list_accelerators(snapshot)
    return tuple(
        node
        for node in list_nodes(snapshot)
        if any(snapshots.count_capacity(node, name) or snapshots.count_allocatable(node, name) for name in names)
    )


def _complete(node: node_views.Node, devices: inventory.Inventory) -> node_views.Node:
    offered = devices.count_devices(node.metadata.name)
    names = [name for name in offered.capacity if not snapshots.count_allocatable(node, name)]
    if not names:
        return node
    capacity = {name: offered.capacity[name] // resources.UNIT for name in names}
    allocatable = {name: offered.allocatable.get(name, 0) // resources.UNIT for name in names}
    status = msgspec.structs.replace(
        node.status,
        capacity_or_none={**node.status.capacity, **capacity},
        allocatable_or_none={**node.status.allocatable, **allocatable},
    )
    return msgspec.structs.replace(node, status=status)
