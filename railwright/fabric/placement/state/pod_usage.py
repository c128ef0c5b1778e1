"""Computes what a pod uses of a node by the observed state, what it will use beyond that, and who uses its devices.

The claims of a pod are allocated before it is bound, and stay allocated if its binding fails.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from railwright.fabric import resources
from railwright.fabric.claims import claim_index, device_pairs, drivers, objects, slices
from railwright.fabric.placement.state import assumed_pods, cluster_state, object_info
from railwright.fabric.policy import model


def list_nodes(cluster: cluster_state.ClusterState, uid: str) -> AbstractSet[str]:
    """Return the nodes whose resources a pod uses: that of its binding, otherwise those of its allocated claims."""
    pod = cluster.pods.get(uid)
    if pod is None:
        return frozenset()
    return {pod.node} if pod.node else cluster.claimed.inventory.list_allocated_nodes(pod.claims)


def count_observed(cluster: cluster_state.ClusterState, uid: str, node: str) -> resources.Amounts:
    """Return what a pod uses on a node by the observed state."""
    pod = cluster.pods.get(uid)
    if pod is None:
        return {}
    requests = pod.requests if pod.node == node else {}
    names = cluster.list_claimable(node) if cluster.has_slices else ()
    if not names:
        return requests
    unallocated = cluster.claimed.count_unallocated(pod.claims, pod.container_requests, requests, names)
    held = cluster.claimed.count_held(pod.claims, node, names)
    return {**requests, **{name: unallocated.get(name, 0) + held.get(name, 0) for name in names}}


def count_removable(cluster: cluster_state.ClusterState, node: str, uids: Iterable[str]) -> resources.Amounts:
    """Return what becomes free on a node while a scheduler simulates the removal of bound pods.

    The devices of their claims do not: kube-scheduler counts a claim as allocated until it is deallocated, also in a
    simulation (its plugin DynamicResources has no PreFilterExtensions).
    """
    claimable, total = cluster.list_claimable(node), Counter[str]()
    for pod in [cluster.pods[uid] for uid in uids if uid in cluster.pods]:
        total.update({name: amount for name, amount in pod.requests.items() if name not in claimable})
    return total


def has_room(
    cluster: cluster_state.ClusterState,
    node: str,
    requests: resources.Amounts,
    *,
    taken: resources.Amounts = resources.NO_AMOUNTS,
    below: int | None = None,
) -> bool:
    """True if a node has room for these requests beside what others have `taken`, by the observed bindings.

    Resources that the node does not report are left out. With `below`, pods of lower priority count as removed.
    """
    if node not in cluster.nodes:
        return False
    free = cluster.get_free(node)
    if below is None or _fits(free, requests, taken):
        return _fits(free, requests, taken)
    if not (removable := cluster.list_below(node, below)):
        return False
    after_removal = Counter(free)
    after_removal.update(count_removable(cluster, node, removable))
    return _fits(after_removal, requests, taken)


def _fits(free: resources.Amounts, requests: resources.Amounts, taken: resources.Amounts) -> bool:
    for name, amount in requests.items():  # noqa: SIM110 - hot path: a loop is faster than a generator
        if name in free and free[name] - taken.get(name, 0) < amount:
            return False
    return True


def count_unobserved(
    cluster: cluster_state.ClusterState, uid: str, node: str, requests: resources.Amounts
) -> resources.Amounts:
    """Return the part of an assumed pod's requests that the observed state does not count yet.

    Its claims may be allocated before its binding is observed. They may also be observed after it was assumed.
    """
    names = cluster.list_claimable(node) if cluster.has_slices else ()
    if not names:
        return requests
    pod = cluster.pods.get(uid)
    if pod is None:
        unallocated = cluster.claimed.count_unallocated(claim_index.PodKey(uid), requests, requests, names)
    else:
        known = {name: max(requests.get(name, 0), pod.requests.get(name, 0)) for name in names}
        unallocated = cluster.claimed.count_unallocated(pod.claims, pod.container_requests, known, names)
    return {**requests, **{name: unallocated.get(name, 0) for name in names}}


def count_free_pairs(
    cluster: cluster_state.ClusterState,
    node: str,
    demand: device_pairs.PairDemand,
    assumed: Iterable[str],
    *,
    except_uid: str,
) -> device_pairs.FreePairs:
    """Return for how many pods with these pairs a node has free devices. What the pod `except_uid` holds is free.

    Pods that wait there for such pairs come first: the UIDs `assumed`, and bound pods. Which pairs they get is not
    known. Others that wait for devices are not counted.
    """
    inventory, pods = cluster.claimed.inventory, cluster.pods
    own = pods.get(except_uid) if except_uid else None
    released = inventory.claims.list_held_devices(own.claims) if own is not None else frozenset()
    free = inventory.count_pairs(node, demand, released)
    waiting = [pods[uid] for uid in {*assumed, *cluster.list_unallocated(node)} if uid in pods and uid != except_uid]
    earlier = sum(
        1
        for pod in waiting
        if not inventory.claims.has_allocated(pod.uid, pod.claim_names) and inventory.read_pairs(pod.claims) == demand
    )
    if not earlier:
        return free
    left = max(0, free.pods - earlier)
    return device_pairs.FreePairs(left, None if left else free.missing or demand.pairs[0])


# --- who uses devices -----------------------------------------------------------------------------------------


class HoldingClaim(msgspec.Struct, frozen=True):
    """A claim that holds devices and belongs to no known pod."""

    uid: str
    key: str  # "claim namespace/name"
    requests: resources.Amounts  # the devices that it holds


Holder = object_info.PodInfo | assumed_pods.AssumedPod | HoldingClaim
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
            key = claim.metadata.full_name
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
    fabric: model.Fabric, pod: object_info.PodInfo | None, cluster: cluster_state.ClusterState
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
