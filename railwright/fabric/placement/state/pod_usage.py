"""Computes the free resources of a node, the resources that a pod uses there, and the pods that use its devices.

The claims of a pod are allocated before it is bound, and stay allocated if its binding fails.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from railwright.fabric import resources
from railwright.fabric.claims import objects, slices
from railwright.fabric.placement.state import assumed_pods, cluster_state, object_info
from railwright.fabric.policy import model


def compute_free(name: str, cluster: cluster_state.ClusterState, absent: Collection[str] = ()) -> resources.Amounts:
    """Return allocatable minus bound minus assumed, without what the pods with the UIDs `absent` use.

    The claims of an assumed pod may be allocated already. Its devices are then not subtracted twice.
    """
    free = cluster.get_free(name)
    unobserved = list_unobserved_requests(name, cluster, absent)
    returned = [count_observed_usage(cluster, uid, name) for uid in absent]
    if not unobserved and not any(returned):
        return free
    result = Counter(free)
    for requests in unobserved:
        result.subtract(requests)
    for requests in returned:
        result.update(requests)
    return result


def list_unobserved_requests(
    name: str, cluster: cluster_state.ClusterState, absent: Collection[str] = ()
) -> Sequence[resources.Amounts]:
    """Return the requests of pods assumed on a node, without the part that the observed state already counts."""
    pods = cluster.pods
    on_node = [
        pod
        for pod in cluster.assumed.list_on_node(name)
        if pod.uid not in absent and not ((known := pods.get(pod.uid)) and known.node)
    ]
    return [count_unobserved_requests(cluster, pod.uid, name, pod.requests) for pod in on_node]


def find_nodes_of_pod(cluster: cluster_state.ClusterState, uid: str) -> AbstractSet[str]:
    """Return the nodes whose resources a pod uses: the node it is bound to, otherwise those of its allocated claims."""
    pod = cluster.pods.get(uid)
    if pod is None or not (pod.node or cluster.has_slices):
        return frozenset()
    return {pod.node} if pod.node else cluster.devices.list_allocated_nodes(pod.claims)


def count_observed_usage(cluster: cluster_state.ClusterState, uid: str, node: str) -> resources.Amounts:
    """Return the resources that a pod uses on a node in the observed state."""
    pod = cluster.pods.get(uid)
    if pod is None:
        return {}
    requests = pod.requests if pod.node == node else {}
    names = cluster.list_slice_resources(node)
    if not names:
        return requests
    held = cluster.devices.count_exclusive_devices(pod.claims, names, node)
    return {**requests, **{name: held.get(name, 0) for name in names}}


def count_unobserved_requests(
    cluster: cluster_state.ClusterState, uid: str, node: str, requests: resources.Amounts
) -> resources.Amounts:
    """Return the part of an assumed pod's requests that the observed state does not count yet.

    The observed state counts the devices of the pod's allocated claims, also before the pod's binding is observed.
    """
    names = cluster.list_slice_resources(node)
    if not names:
        return requests
    pod = cluster.pods.get(uid)
    known, held = (
        (pod.requests, cluster.devices.count_exclusive_devices(pod.claims, names)) if pod is not None else ({}, {})
    )
    requested = {name: max(requests.get(name, 0), known.get(name, 0)) for name in names}
    return {**requests, **{name: max(0, amount - held.get(name, 0)) for name, amount in requested.items()}}


# --- who uses devices -----------------------------------------------------------------------------------------


class HoldingClaim(msgspec.Struct, frozen=True):
    """A claim that holds devices and belongs to no known pod."""

    uid: str
    key: str  # "claim namespace/name"
    requests: resources.Amounts  # the devices that it holds


Holder = object_info.PodInfo | assumed_pods.AssumedPod | HoldingClaim
"""A bound or assumed pod on a node, a pod with an allocated claim, or a claim without a pod."""


def list_holders(node: str, cluster: cluster_state.ClusterState, *, except_uid: str) -> tuple[Holder, ...]:
    """Return the holders of devices of a node, except the pod `except_uid`."""
    pods: list[Holder] = [*cluster.list_pods_on(node), *cluster.assumed.list_on_node(node)]
    if cluster.has_slices:
        claims = cluster.devices.list_claims_on_node(node)
        pods += _list_claim_holders(claims, node, cluster, {pod.uid for pod in pods})
    return tuple([pod for pod in pods if pod.uid != except_uid])


def _list_claim_holders(
    claims: Iterable[objects.ResourceClaim], node: str, cluster: cluster_state.ClusterState, listed: set[str]
) -> Iterator[Holder]:
    """Yield the unbound pods whose claims hold devices of the node, and the claims that no known pod uses."""
    for claim in claims:
        pods = list_claim_pods(claim, cluster)
        if not pods:
            held = cluster.devices.count_held_devices(claim, node)
            yield HoldingClaim(claim.metadata.uid, f"claim {claim.metadata.full_name}", held)
        for pod in pods:
            if pod.uid not in listed:
                listed.add(pod.uid)
                yield pod


def list_claim_pods(claim: objects.ResourceClaim, cluster: cluster_state.ClusterState) -> Sequence[object_info.PodInfo]:
    """Return the known pods that use a claim. Pods of other namespaces cannot."""
    pods = (cluster.pods[uid] for uid in sorted(claim.consumers) if uid in cluster.pods)
    return [pod for pod in pods if pod.claims.namespace == claim.metadata.namespace]


class HeldRail(msgspec.Struct, frozen=True):
    """A device of a rail that a claim of the pod holds."""

    rail: str  # its name in the policy
    device: str  # the RDMA device, or the device's name in its slice if the slice does not say it


def list_held_rails(
    fabric: model.Fabric, pod: object_info.PodInfo | None, cluster: cluster_state.ClusterState
) -> tuple[HeldRail, ...]:
    """Return the rails' devices that the pod's allocated claims hold, in the order of the fabric.

    The resource of each rail must be filled in, also for rails that come as claims (`intent.fill_resources`).
    """
    if pod is None or not cluster.has_slices:
        return ()
    held = cluster.devices.list_held_devices(pod.claims)
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
    keys = [key for key in (own, objects.RDMA_DEVICE) if key and key.endswith("rdmaDevice")]
    values = [attributes.get(key, objects.Attribute()).value for key in keys]
    return next((value for value in values if isinstance(value, str) and value), device.id.device)
