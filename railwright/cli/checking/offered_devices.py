"""Nodes with what kubelet reports and what ResourceSlices offer, as placement counts it."""

from collections.abc import Sequence

import msgspec

from railwright.cli.checking import snapshots
from railwright.cluster import expression_process
from railwright.fabric import node_views, resources
from railwright.fabric.claims import inventory, unknown_selectors
from railwright.fabric.policy import claimed_rails

SOURCES = ("device-classes", "device-slices")
"""Sources that a row uses if it counts devices of nodes."""


def list_nodes(snapshot: snapshots.ClusterSnapshot) -> tuple[node_views.Node, ...]:
    """Return the nodes. Devices of slices are counted like those of device plugins, which take precedence."""
    nodes: tuple[node_views.Node, ...] = snapshot.get_all("nodes")
    if not snapshot.get_all("device-slices"):
        return nodes
    devices = _count_devices(snapshot)
    return tuple(_complete(node, devices) for node in nodes)


def _count_devices(snapshot: snapshots.ClusterSnapshot) -> inventory.Inventory:
    """Return the devices of slices, with all expressions evaluated."""
    devices = inventory.Inventory()
    devices.replace_classes(snapshot.get_all("device-classes"))
    devices.replace_slices(snapshot.get_all("device-slices"))
    if snapshot.policy is not None:
        devices.replace_claim_resources(claimed_rails.list_claim_resources(snapshot.policy))
    for node in devices.list_nodes():
        devices.count_devices(node)  # asks which devices match
    if questions := devices.results.list_questions():
        devices.answer(expression_process.answer_all(questions))
        for node in devices.list_nodes():
            devices.count_devices(node)
    return devices


def list_unknown(snapshot: snapshots.ClusterSnapshot) -> Sequence[unknown_selectors.UnknownSelector]:
    """Return the DeviceClasses with expressions of which it is unknown which of the offered devices match."""
    return _count_devices(snapshot).list_unknown()


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
