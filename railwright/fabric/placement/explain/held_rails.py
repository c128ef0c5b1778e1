"""Lists the rails and devices that a pod really has by claims, whatever rails its record or its requests name."""

from collections.abc import Sequence

import msgspec

from railwright.fabric.claims import drivers, objects, slices
from railwright.fabric.placement.state import cluster_state, pod_info
from railwright.fabric.policy import model


class HeldRail(msgspec.Struct, frozen=True):
    """A device of a rail that a claim of the pod holds."""

    rail: str  # its name in the policy
    device: str  # the RDMA device, or the device's name in its slice if the slice does not say it


def list_held_rails(
    fabric: model.Fabric, pod: pod_info.PodInfo | None, cluster: cluster_state.ClusterState
) -> tuple[HeldRail, ...]:
    """Return the rails of a pod whose claims are allocated, in the order of the fabric, whose rails have resources."""
    if pod is None or not cluster.has_slices:
        return ()
    held = cluster.claimed.inventory.list_held(pod.claims)
    return tuple(
        HeldRail(rail.name, _name_device(device, fabric))
        for rail in fabric.rails
        for device, names in held
        if rail.resource in names
    )


def format_held_rails(held: Sequence[HeldRail]) -> str:
    """Return rails and devices as text: `rail1 mlx5_1, rail3 mlx5_3`."""
    return ", ".join(f"{row.rail} {row.device}" for row in held)


def _name_device(device: slices.OfferedDevice, fabric: model.Fabric) -> str:
    attributes = device.device.attributes or {}
    own = fabric.claims.rail_attribute if fabric.claims is not None else None
    keys = [key for key in (own, drivers.DRANET.rail_attribute) if key and key.endswith("rdmaDevice")]
    values = [attributes.get(key, objects.Attribute()).value for key in keys]
    return next((value for value in values if isinstance(value, str) and value), device.id.device)
