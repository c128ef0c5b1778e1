"""Lists the pods of a gang that are placed, and those that are not, from the cluster state and the assumed pods."""

import operator
from collections.abc import Collection, Iterator
from typing import NamedTuple

from railwright.fabric import resources
from railwright.fabric.placement.state import assumed_pods, cluster_state, pod_info
from railwright.fabric.workloads import membership


class PlacedPeer(NamedTuple):
    """Another pod of the requesting pod's gang: bound, assumed, or with devices of a node. Sorted by rank."""

    rank: membership.Rank
    uid: str
    node: str
    requests: resources.FrozenAmounts


def list_placed(
    gang: membership.GangKey,
    cluster: cluster_state.ClusterState,
    assumed: assumed_pods.Assumptions,
    *,
    except_uid: str,
    ignored_uids: Collection[str],
) -> list[PlacedPeer]:
    """Return the pods that are bound or assumed, or whose claims hold devices of a node, by rank.

    What is observed takes precedence over an assumption. A scheduler allocates the claims of a pod before it binds it,
    and can bind it to no other node then.
    The pod `except_uid` is left out. `ignored_uids` are the UIDs of assumptions to ignore.
    """
    placed = {
        pod.uid: PlacedPeer(pod.rank, pod.uid, node, pod.requests)
        for pod in cluster.get_gang(gang).values()
        if pod.uid != except_uid and (node := find_node(pod, cluster))
    }
    for pod in assumed.list_of_gang(gang):
        if pod.uid not in ignored_uids:
            placed.setdefault(pod.uid, PlacedPeer(pod.rank, pod.uid, pod.node, pod.requests))
    return sorted(placed.values())  # by rank; UIDs differ, so that requests are never compared


def has_placed(
    gang: membership.GangKey, cluster: cluster_state.ClusterState, assumed: assumed_pods.Assumptions
) -> bool:
    """True if a pod of a gang is placed."""
    pods = cluster.get_gang(gang).values()
    if any(map(operator.attrgetter("node"), pods)) or any(True for _ in assumed.list_of_gang(gang)):
        return True
    return cluster.has_slices and any(find_node(pod, cluster) for pod in pods)


def list_unplaced(
    gang: membership.GangKey, cluster: cluster_state.ClusterState, assumed: assumed_pods.Assumptions
) -> Iterator[pod_info.PodInfo]:
    """Return the existing pods of a gang that are not placed."""
    assumed_uids = {pod.uid for pod in assumed.list_of_gang(gang)}
    pods = cluster.get_gang(gang).items()
    return (pod for uid, pod in pods if uid not in assumed_uids and not find_node(pod, cluster))


def find_node(pod: pod_info.PodInfo, cluster: cluster_state.ClusterState) -> str:
    """Return the node of a pod that is bound or whose claims hold devices; otherwise ""."""
    devices = cluster.claimed.inventory
    if pod.node or not devices.has_allocated(pod.uid, pod.claim_names):
        return pod.node
    return min(devices.list_allocated_nodes(pod.claims), default="")
