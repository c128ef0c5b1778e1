"""The scheduling state of a gang: its placed pods, its unplaced pods, and the slots that they need."""

import itertools
from collections.abc import Collection, Sequence

import msgspec

from railwright.fabric import resources
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import cluster_state, object_info
from railwright.fabric.workloads import membership


class PlacedPeer(msgspec.Struct, gc=False, frozen=True, order=True):
    """Another pod of the requesting pod's gang: bound, assumed, or with devices of a node. Sorted by rank."""

    rank: membership.Rank
    uid: str
    node: str
    requests: resources.FrozenAmounts


def list_placed_peers(
    gang: membership.GangKey,
    cluster: cluster_state.ClusterState,
    *,
    except_uid: str,
    ignored_uids: Collection[str] = (),
) -> list[PlacedPeer]:
    """Return the pods that are bound or assumed, or whose claims hold devices of a node, by rank.

    Observations take precedence over assumptions. A scheduler allocates a pod's claims first, and can then bind it to
    no other node. The pod `except_uid` is left out. `ignored_uids` are the UIDs of assumptions to ignore.
    """
    known: Collection[object_info.PodInfo] = cluster.get_gang(gang).values()
    if not cluster.has_slices:
        known = [pod for pod in known if pod.node]  # large gangs wait as a whole
    placed = {
        pod.uid: PlacedPeer(pod.rank, pod.uid, node, pod.requests)
        for pod in known
        if pod.uid != except_uid and (node := pod.node or find_node(pod, cluster))
    }
    for pod in cluster.assumed.list_of_gang(gang):
        if pod.uid != except_uid and pod.uid not in ignored_uids:
            placed.setdefault(pod.uid, PlacedPeer(pod.rank, pod.uid, pod.node, pod.requests))
    return sorted(placed.values())  # by rank; UIDs differ, so that requests are never compared


def count_unplaced_pods(gang: membership.GangKey, cluster: cluster_state.ClusterState) -> int:
    """Return the number of existing pods of a gang that are not placed."""
    waiting = [pod for pod in cluster.get_gang(gang).values() if not pod.node]  # few, or none
    return sum(not (cluster.assumed.get(pod.uid) or find_node(pod, cluster)) for pod in waiting)


def find_node(pod: object_info.PodInfo, cluster: cluster_state.ClusterState) -> str:
    """Return the node of a pod that is bound or whose claims hold devices; otherwise ""."""
    if pod.node or not cluster.has_slices:
        return pod.node
    return min(cluster.devices.list_allocated_nodes(pod.claims), default="")


class GangStatus(msgspec.Struct, frozen=True):
    """The placed and unplaced pods of the requesting pod's gang.

    Unplaced pods count only if they request devices, unless no pod of the gang does.
    The plan has a slot for each unplaced pod, of the size of the largest.
    """

    size: int
    placed: Sequence[PlacedPeer]  # by rank
    waiting: Sequence[membership.Rank]  # of the unplaced pods whose rank is known, the requesting one too, in order
    missing: int  # pods that do not exist yet and whose rank is unknown; they count as workers after all others
    planning_request: resources.FrozenAmounts  # requests of the largest unplaced pod
    largest: int  # unplaced pods that have this request
    # placed peers that request devices (launchers do not), or all if no pod of the gang does
    placed_workers: Sequence[PlacedPeer]

    @property
    def unplaced(self) -> int:
        """Return the number of unplaced pods, including the requesting one and those that do not exist yet."""
        return len(self.waiting) + self.missing

    @property
    def is_mixed(self) -> bool:
        """True if the unplaced pods request different amounts."""
        return self.largest < self.unplaced


def build_status(request: scheduling_request.SchedulingRequest, cluster: cluster_state.ClusterState) -> GangStatus:
    """Return the state of the requesting pod's gang; a gang of one if the pod has none.

    Launchers are left out of the plan. They request almost nothing, so a plan based on one would fit anywhere. Counted
    as a worker, a launcher would need an additional node. Pods that do not exist yet count as workers. Their ranks are
    the missing indexes: a Job's controller creates several pods at the same time, so a scheduler may ask about a rank
    before lower ones exist.
    """
    placed = list_placed_peers(request.gang, cluster, except_uid=request.uid)
    placed_uids = {request.uid, *(peer.uid for peer in placed)}
    waiting = [pod for uid, pod in cluster.get_gang(request.gang).items() if uid not in placed_uids]
    size = cluster.get_gang_size(request.gang, observed=len(placed_uids) + len(waiting)) if request.gang else 1
    missing = max(0, size - len(placed) - len(waiting) - 1)
    accelerators = request.policy.document.accelerators
    devices = {*accelerators, *(rail.resource for rail in request.fabric.rails if rail.resource)}
    workers = [pod for pod in waiting if not devices.isdisjoint(pod.requests)]
    placed_workers = [peer for peer in placed if not devices.isdisjoint(peer.requests)]

    own = request.rank, request.requests
    takes_devices = not devices.isdisjoint(request.requests)
    # a launcher is planned by the workers, unless no pod of the gang requests devices
    pods = [(pod.rank, pod.requests) for pod in (workers if takes_devices else workers or waiting)]
    if takes_devices or not workers:
        pods.insert(0, own)
    # that with the most accelerators, the own one on ties: a smaller pod would overestimate the slots
    distinct = dict.fromkeys({id(requests): requests for _, requests in pods}.values())  # most are one object
    largest = max(distinct, key=lambda requests: sum([requests.get(name, 0) for name in accelerators]))
    ranks = [rank for rank, _ in pods]
    late: Sequence[membership.Rank] = ()
    if missing:
        ended = [pod.rank for pod in cluster.list_ended(request.gang)]
        known = [*ranks, *[peer.rank for peer in placed_workers], *ended]
        late = _list_missing_ranks(known, size + len(ended), missing)
    return GangStatus(
        size=size,
        placed=placed,
        waiting=sorted([*ranks, *late]),
        missing=missing - len(late),
        planning_request=largest,
        largest=len(pods) + missing if len(distinct) == 1 else sum(requests == largest for _, requests in pods),
        placed_workers=placed if not placed_workers and devices.isdisjoint(largest) else placed_workers,
    )


def _list_missing_ranks(ranks: Sequence[membership.Rank], size: int, missing: int) -> Sequence[membership.Rank]:
    """Return the ranks of pods that do not exist yet: the gang's indexes that are not in `ranks`.

    Returns none if the indexes do not number the gang's pods from 0.
    """
    indexes = {rank.index for rank in ranks if rank.role}
    if len(indexes) < sum(rank.role for rank in ranks) or max(indexes, default=0) >= size:
        return ()
    indexes.update([rank.index for rank in ranks])  # a leader may have index 0, and its workers those from 1 on
    late = (index for index in range(size) if index not in indexes)
    return [membership.Rank(role=1, index=index, name="") for index in itertools.islice(late, min(missing, _MAX_LATE))]


_MAX_LATE = 500  # a Job's controller creates no more pods at once (MaxPodCreateDeletePerSync); later ones come last
