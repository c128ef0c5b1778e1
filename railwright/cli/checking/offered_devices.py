"""Nodes with what kubelet reports and what ResourceSlices offer, as placement counts it."""

from collections.abc import Iterator, Sequence

import msgspec

from railwright.cli.checking.snapshots import Snapshot, count, list_accelerators
from railwright.cluster import expression_process
from railwright.fabric import bounded_cache, node_views, resources
from railwright.fabric.claims import inventory, resource_names
from railwright.fabric.placement.state import object_info, rail_reports
from railwright.fabric.policy import claimed_rails


def list_nodes(snapshot: Snapshot) -> tuple[node_views.Node, ...]:
    """Return the nodes. Devices of slices are counted like those of device plugins, which take precedence."""
    nodes: tuple[node_views.Node, ...] = snapshot.get_all("nodes")
    if not snapshot.get_all("device-slices"):
        return nodes
    devices = _count_devices(snapshot)
    return tuple(_complete(node, devices) for node in nodes)


def list_unknown(snapshot: Snapshot) -> Sequence[resource_names.UnknownSelector]:
    """Return the DeviceClasses with expressions of which it is unknown which of the offered devices match."""
    return _count_devices(snapshot).list_unknown()


def observe(snapshot: Snapshot) -> Iterator[rail_reports.Observation]:
    """Yield the nodes with reports about NICs, as placement reads them."""
    nodes: tuple[node_views.Node, ...] = snapshot.get_all("nodes")
    reported = [(node, named) for node in nodes if (named := rail_reports.read_conditions(node))]
    devices = _count_devices(snapshot) if reported else inventory.Inventory()
    interner = bounded_cache.StringInterner()
    for node, named in reported:
        yield rail_reports.Observation(object_info.read_node(node, interner, resources.freeze), named, devices)


def list_accelerated(snapshot: Snapshot) -> list[node_views.Node]:
    """Return the nodes with at least one accelerator, healthy or not."""
    return [node for node in list_nodes(snapshot) if has_any(node, list_accelerators(snapshot))]


def has_any(node: node_views.Node, names: Sequence[str]) -> bool:
    """True if a node has at least one device of these resources, healthy or not."""
    return any(count(node.status.capacity, name) or count(node.status.allocatable, name) for name in names)


def _count_devices(snapshot: Snapshot) -> inventory.Inventory:
    """Return the devices of slices, with all expressions evaluated."""
    devices = inventory.Inventory()
    devices.class_sink.replace(snapshot.get_all("device-classes"))
    devices.slice_sink.replace(snapshot.get_all("device-slices"))
    if snapshot.policy is not None:
        devices.replace_claim_resources(claimed_rails.list_claim_resources(snapshot.policy))
    for node in devices.offered.ids_by_node:
        devices.count_devices(node)  # asks which devices match
    if questions := devices.names.evaluations.list_questions():
        devices.answer(expression_process.answer_all(questions))
        for node in devices.offered.ids_by_node:
            devices.count_devices(node)
    return devices


def _complete(node: node_views.Node, devices: inventory.Inventory) -> node_views.Node:
    offered = devices.count_devices(node.metadata.name)
    names = [name for name in offered.capacity if not count(node.status.allocatable, name)]
    capacity = {name: offered.capacity[name] // resources.UNIT for name in names}
    allocatable = {name: offered.allocatable.get(name, 0) // resources.UNIT for name in names}
    status = msgspec.structs.replace(
        node.status,
        capacity_or_none={**node.status.capacity, **capacity},
        allocatable_or_none={**node.status.allocatable, **allocatable},
    )
    return msgspec.structs.replace(node, status=status)
