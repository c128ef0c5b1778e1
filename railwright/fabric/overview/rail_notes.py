"""Says why rails that come as claims are unavailable on a node: tainted, held by a claim, or without a device."""

from collections.abc import Collection

import msgspec

from railwright.fabric import resources
from railwright.fabric.claims import node_devices
from railwright.fabric.placement.state import cluster_state, node_info
from railwright.fabric.policy import model as policies


class UnavailableRails(msgspec.Struct, frozen=True):
    """Rails that pods cannot get, with the reasons. `held` are positions of those that claims of other pods hold."""

    notes: tuple[str, ...] = ()
    held: frozenset[int] = frozenset()


NONE = UnavailableRails()


def describe(
    fabric: policies.Fabric, node: node_info.NodeInfo, cluster: cluster_state.ClusterState, used: Collection[int]
) -> UnavailableRails:
    """Return the unavailable rails of a node. The rails `used` are those of pods that are listed with the node."""
    if fabric.claims is None:
        return NONE
    notes: list[str] = []
    held: set[int] = set()
    unavailable = cluster.claimed.inventory.list_unavailable(node.name)
    for position, rail in enumerate(fabric.rails):
        if not rail.resource:
            continue
        capacity = node.capacity.get(rail.resource, 0) // resources.UNIT
        if not capacity:
            missing = f"no device of DeviceClass {fabric.claims.device_class} in the ResourceSlices of the node"
            notes.append(f"{rail.name}: {missing} matches it")
        devices = unavailable.get(rail.resource, ())
        notes += [f"{rail.name}: device {row.device} has the taint {row.taint}" for row in devices if row.taint]
        if devices and len(devices) >= capacity and position not in used:
            holders = [row for row in devices if not row.taint]
            held |= {position} if holders else set()
            notes += [f"{rail.name}: device {row.device} is held by {_name_holder(row, cluster)}" for row in holders]
    return UnavailableRails(tuple(notes), frozenset(held))


def _name_holder(device: node_devices.UnavailableDevice, cluster: cluster_state.ClusterState) -> str:
    pods = ", ".join(pod.key for uid in device.pods if (pod := cluster.pods.get(uid)) is not None)
    return f"claim {device.claim} of pod {pods}" if pods else f"claim {device.claim}"
