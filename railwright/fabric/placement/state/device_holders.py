"""Lists who uses the devices of a node: bound pods, assumed pods, and claims whose pod is not bound.

Also lists the rails that a pod really has by claims, whatever rails its record or its requests name.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from railwright.fabric import resources
from railwright.fabric.claims import claim_index, drivers, objects, slices
from railwright.fabric.placement.state import assumed_pods, cluster_state, pod_info
from railwright.fabric.policy import model


class HoldingClaim(msgspec.Struct, frozen=True):
    """A claim that holds devices and belongs to no known pod."""

    uid: str
    key: str  # "claim namespace/name"
    requests: resources.Amounts  # the devices that it holds


Holder = pod_info.PodInfo | assumed_pods.AssumedPod | HoldingClaim
"""A bound or assumed pod on a node, a pod with an allocated claim, or a claim without a pod."""


def list_holders(
    node: str, cluster: cluster_state.ClusterState, assumed: assumed_pods.Assumptions, *, except_uid: str
) -> tuple[Holder, ...]:
    """Return the holders of devices of a node, except the pod `except_uid`."""
    bound = cluster.get_pods_on(node)
    pods: list[Holder] = [*bound.values(), *assumed.list_on_node(node)]
    if cluster.has_slices:
        holders = cluster.claimed.inventory.list_holders(node)
        others = [holder for holder in holders if not holder.pods or not holder.pods <= bound.keys()]
        if others:
            pods += _list_by_claims(others, node, cluster, {pod.uid for pod in pods})
    return tuple([pod for pod in pods if pod.uid != except_uid])


def _list_by_claims(
    holders: Iterable[claim_index.Holder], node: str, cluster: cluster_state.ClusterState, listed: set[str]
) -> Iterator[Holder]:
    """Yield the pods that are not bound yet but have devices, and claims that no known pod uses."""
    for claim, uids in holders:
        pods = [cluster.pods[uid] for uid in uids if uid in cluster.pods]
        if not pods:
            key = claim_index.format_key(claim.metadata)
            held = cluster.claimed.inventory.count_held([claim], node)
            yield HoldingClaim(claim.metadata.uid, f"claim {key}", held)
        for pod in pods:
            if pod.uid not in listed:
                listed.add(pod.uid)
                yield pod


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
