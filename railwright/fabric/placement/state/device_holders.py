"""Lists who uses the devices of a node: bound pods, assumed pods, and claims whose pod is not bound."""

from collections.abc import Iterator

import msgspec

from railwright.fabric import resources
from railwright.fabric.placement.state import assumed_pods, cluster_state, pod_info


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
    pods: list[Holder] = [*cluster.list_pods_on(node), *assumed.list_on_node(node)]
    if cluster.has_slices:
        pods += _list_by_claims(node, cluster, {pod.uid for pod in pods})
    return tuple(pod for pod in pods if pod.uid != except_uid)


def _list_by_claims(node: str, cluster: cluster_state.ClusterState, listed: set[str]) -> Iterator[Holder]:
    """Yield the pods that are not bound yet but have devices, and claims that no known pod uses."""
    devices, known = cluster.claimed.inventory, cluster.pods
    for claim, uids in devices.list_holders(node):
        pods = [known[uid] for uid in uids if uid in known]
        if not pods:
            key = f"claim {claim.metadata.namespace}/{claim.metadata.name}"
            yield HoldingClaim(claim.metadata.uid, key, devices.count_held([claim], node))
        for pod in pods:
            if pod.uid not in listed:
                listed.add(pod.uid)
                yield pod
