"""The scheduling state of a gang: which of its pods are placed, which are not, and the slots that these need."""

import bisect
import itertools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from railwright.fabric import resources
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import assumed_pods, cluster_state, object_info
from railwright.fabric.workloads import membership


class PlacedPeer(msgspec.Struct, gc=False, frozen=True, order=True):
    """Another pod of the requesting pod's gang: bound, assumed, or with devices of a node. Sorted by rank."""

    rank: membership.Rank
    uid: str
    node: str
    requests: resources.FrozenAmounts


_Pod = TypeVar("_Pod", object_info.PodInfo, PlacedPeer)


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
    pods, unbound = cluster.get_gang(gang), cluster.get_unbound(gang)
    placed = {}
    if len(unbound) < len(pods) or cluster.has_slices:  # large gangs wait as a whole
        placed = {
            pod.uid: PlacedPeer(pod.rank, pod.uid, node, pod.requests)
            for pod in pods.values()
            if pod.uid != except_uid and (node := pod.node or find_node(pod, cluster))
        }
    for pod in assumed.list_of_gang(gang):
        if pod.uid not in ignored_uids:
            placed.setdefault(pod.uid, PlacedPeer(pod.rank, pod.uid, pod.node, pod.requests))
    return sorted(placed.values())  # by rank; UIDs differ, so that requests are never compared


def has_placed(
    gang: membership.GangKey, cluster: cluster_state.ClusterState, assumed: assumed_pods.Assumptions
) -> bool:
    """True if a pod of a gang is placed."""
    unbound = cluster.get_unbound(gang)
    if len(unbound) < len(cluster.get_gang(gang)) or assumed.list_of_gang(gang):
        return True
    return cluster.has_slices and any(find_node(pod, cluster) for pod in unbound.values())


def has_unplaced(
    gang: membership.GangKey, cluster: cluster_state.ClusterState, assumed: assumed_pods.Assumptions
) -> bool:
    """True if a pod of a gang exists that is not placed; in constant time while fewer pods are assumed than unbound."""
    if not cluster.has_slices and len(cluster.get_unbound(gang)) > len(assumed.list_of_gang(gang)):
        return True
    return any(True for _ in list_unplaced(gang, cluster, assumed))


def list_unplaced(
    gang: membership.GangKey, cluster: cluster_state.ClusterState, assumed: assumed_pods.Assumptions
) -> Iterator[object_info.PodInfo]:
    """Return the existing pods of a gang that are not placed."""
    assumed_uids = {pod.uid for pod in assumed.list_of_gang(gang)}
    pods = cluster.get_unbound(gang).items()
    return (pod for uid, pod in pods if uid not in assumed_uids and not find_node(pod, cluster))


def count_unplaced(
    gang: membership.GangKey, cluster: cluster_state.ClusterState, assumed: assumed_pods.Assumptions
) -> int:
    """Return the number of the pods that `list_unplaced` returns; in constant time if no pod is assumed."""
    if cluster.has_slices:  # a pod that is not bound may have devices of a node
        return sum(1 for _ in list_unplaced(gang, cluster, assumed))
    unbound = cluster.get_unbound(gang)
    return len(unbound) - sum(1 for pod in assumed.list_of_gang(gang) if pod.uid in unbound)


def find_node(pod: object_info.PodInfo, cluster: cluster_state.ClusterState) -> str:
    """Return the node of a pod that is bound or whose claims hold devices; otherwise ""."""
    devices = cluster.claimed.inventory
    if pod.node or not devices.claims.has_allocated(pod.uid, pod.claim_names):
        return pod.node
    return min(devices.list_allocated_nodes(pod.claims), default="")


class GangStatus(msgspec.Struct, frozen=True):
    """The gang of a request. Unplaced pods count only if they request devices, unless no pod of the gang does.

    The plan has slots. A slot has the size of the largest pod; consecutive smaller pods may share one.
    """

    size: int
    placed: Sequence[PlacedPeer]  # by rank
    slot_ranks: Sequence[membership.Rank]  # first rank of each slot of unplaced pods whose rank is known, in order
    missing: int  # pods that do not exist yet and whose rank is unknown; they count as workers after all others
    unplaced: int  # unplaced pods, including the requesting one and those that do not exist yet
    planning_request: resources.FrozenAmounts  # requests of the pod that the plan is based on: the size of a slot
    # placed peers that request devices (launchers do not), or all if no pod of the gang does
    placed_workers: Sequence[PlacedPeer]
    # UIDs whose earlier assumption is void because the scheduler is retrying them (includes the requesting pod)
    retried_uids: frozenset[str] = frozenset()

    @property
    def remaining_slots(self) -> int:
        """Return the number of slots that the plan needs."""
        return len(self.slot_ranks) + self.missing

    def find_slot(self, rank: membership.Rank) -> membership.Rank:
        """Return the first rank of the slot that contains a rank; the first slot for a rank before all slots."""
        at = bisect.bisect_right(self.slot_ranks, rank) - 1
        return self.slot_ranks[max(0, at)]


def build_status(
    request: scheduling_request.SchedulingRequest,
    cluster: cluster_state.ClusterState,
    assumed: assumed_pods.Assumptions,
    *,
    part: str = "",
) -> GangStatus:
    """Return the state of the requesting pod's gang; a gang of one if the pod has none.

    With `part`, only the pods of this part of the gang count as unplaced. All of them exist.
    Launchers are left out of the plan: they request almost nothing, so a plan based on one would fit anywhere, and a
    launcher counted as a worker would need a node too many. Pods that do not exist yet count as workers. If all pods of
    the gang are equal, the indexes that are missing among those that exist are their ranks: a Job's controller creates
    several pods at the same time, so that a scheduler may ask about a rank before lower ones exist.
    """
    retried_uids = assumed_pods.find_stale(assumed, request.uid)
    placed = list_placed(request.gang, cluster, assumed, except_uid=request.uid, ignored_uids=retried_uids)
    placed_uids = {request.uid, *(peer.uid for peer in placed)}
    waiting = [pod for uid, pod in cluster.get_gang(request.gang).items() if uid not in placed_uids]
    size = cluster.get_gang_size(request.gang, observed=len(placed_uids) + len(waiting)) if request.gang else 1
    missing = 0 if part else max(0, size - len(placed) - len(waiting) - 1)
    waiting = [pod for pod in waiting if pod.part == part] if part else waiting
    devices = _list_devices(request)
    workers = _select_device_pods(waiting, devices)
    placed_workers = _select_device_pods(placed, devices)

    def build(slot_ranks: Sequence[membership.Rank], unplaced: int, planning: resources.FrozenAmounts) -> GangStatus:
        return GangStatus(
            size=size,
            placed=placed,
            slot_ranks=slot_ranks,
            missing=missing,
            unplaced=unplaced + missing,
            planning_request=planning,
            placed_workers=placed if not placed_workers and devices.isdisjoint(planning) else placed_workers,
            retried_uids=retried_uids,
        )

    own_requests = request.requests
    if not devices.isdisjoint(own_requests):
        kinds = {id(pod.requests): pod.requests for pod in workers}  # equal ones are mostly one object
        distinct = dict.fromkeys(kinds.values())
        largest = _select_planning_request(request.accelerators, own_requests, distinct)
        if distinct.keys() | {own_requests} == {largest}:
            ranks = [request.rank, *[pod.rank for pod in workers]]
            if missing:
                late = _list_late_ranks([*ranks, *[peer.rank for peer in placed_workers]], size, missing)
                missing -= len(late)
                ranks += late
            return build(sorted(ranks), len(ranks), largest)
        pods = [(request.rank, own_requests), *((pod.rank, pod.requests) for pod in workers)]
        return build(_assign_slots(pods, largest), len(pods), largest)
    if not workers:
        return build(sorted([request.rank, *(pod.rank for pod in waiting)]), len(waiting) + 1, own_requests)
    largest = max(workers, key=lambda pod: sum(pod.requests.get(name, 0) for name in devices)).requests
    return build(_assign_slots([(pod.rank, pod.requests) for pod in workers], largest), len(workers), largest)


def _list_late_ranks(ranks: Sequence[membership.Rank], size: int, missing: int) -> Sequence[membership.Rank]:
    """Return the ranks of pods that do not exist yet: the indexes of the gang that are missing among those of `ranks`.

    There are none if the indexes do not number the pods of the gang from 0 on.
    """
    indexes = {rank.index for rank in ranks if rank.role}
    if len(indexes) < sum(rank.role for rank in ranks) or max(indexes, default=0) >= size:
        return ()
    indexes.update([rank.index for rank in ranks])  # a leader may have index 0, and its workers those from 1 on
    late = (index for index in range(size) if index not in indexes)
    return [membership.Rank(role=1, index=index, name="") for index in itertools.islice(late, min(missing, _MAX_LATE))]


_MAX_LATE = 500  # a Job's controller creates no more pods at once (MaxPodCreateDeletePerSync); later ones come last


def _assign_slots(
    pods: Sequence[tuple[membership.Rank, resources.FrozenAmounts]], slot_size: resources.FrozenAmounts
) -> Sequence[membership.Rank]:
    """Return the first rank of each slot, for pods given as (rank, requests).

    Consecutive pods share a slot as long as their total request fits in `slot_size`. The total includes rails, so pods
    that need exclusive rails never share a slot.
    """
    slot_ranks: list[membership.Rank] = []
    left: dict[str, int] = {}
    for rank, requests in sorted(pods, key=operator.itemgetter(0)):
        amounts = [(name, amount) for name, amount in requests.items() if name != resources.PODS]
        if not slot_ranks or any(left.get(name, 0) < amount for name, amount in amounts):
            slot_ranks.append(rank)
            left = dict(slot_size)
        for name, amount in amounts:
            left[name] = left.get(name, 0) - amount
    return slot_ranks


def _select_device_pods(pods: Sequence[_Pod], devices: set[str]) -> Sequence[_Pod]:
    """Return the pods that request devices. Those of a gang share a few objects for their requests."""
    kinds = {id(pod.requests): pod.requests for pod in pods}
    without = {kind for kind, requests in kinds.items() if devices.isdisjoint(requests)}
    return [pod for pod in pods if id(pod.requests) not in without] if without else pods


def _select_planning_request(
    accelerators: Sequence[str], own_requests: resources.FrozenAmounts, distinct: Iterable[resources.FrozenAmounts]
) -> resources.FrozenAmounts:
    """Return the requests of the pod with the most accelerators. A smaller pod would overestimate the slots."""

    def count(requests: resources.FrozenAmounts) -> int:
        return sum([requests.get(name, 0) for name in accelerators])

    largest = max(distinct, key=count, default=own_requests)
    return largest if count(largest) > count(own_requests) else own_requests


def is_single_pod(request: scheduling_request.SchedulingRequest, cluster: cluster_state.ClusterState) -> bool:
    """True if the pod is the only pod of its job, by the declared size and the pods that exist."""
    gang = cluster.get_gang(request.gang)
    observed = len(gang) + (request.uid not in gang)
    return not request.gang or (observed == 1 and cluster.get_gang_size(request.gang, observed=observed) == 1)


def _list_devices(request: scheduling_request.SchedulingRequest) -> set[str]:
    return {*request.accelerators, *(rail.resource for rail in request.fabric.rails if rail.resource)}


# --- a gang that is announced pod by pod -------------------------------------------------------------------


class GangStatuses:
    """Builds the states of gangs, like `build_status`.

    A scheduler that announces its placements asks about one pod of a gang after the other. Then the latest state is
    continued by the pods announced since, so that a gang of hundreds is not visited for each of them.
    """

    def __init__(self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods) -> None:
        self._cluster, self._assumed = cluster, assumed
        self._latest: _AnnouncedGang | None = None

    def build(self, request: scheduling_request.SchedulingRequest, assumed: assumed_pods.Assumptions) -> GangStatus:
        """Return the state of the requesting pod's gang."""
        if assumed is not self._assumed or not request.offers:
            return build_status(request, self._cluster, assumed)
        latest, inputs = self._latest, self._read_inputs(request)
        status = latest.continue_for(request, self._assumed) if latest is not None and latest.inputs == inputs else None
        if status is None:
            status = build_status(request, self._cluster, assumed)
            pods = self._cluster.get_gang(request.gang)
            is_exact = not (self._cluster.has_slices or self._assumed.unseen or self._assumed.get(request.uid))
            can_continue = is_exact and _is_uniform(request, status, pods)
            self._latest = _AnnouncedGang(inputs, status, pods, self._assumed) if can_continue else None
        return status

    def _read_inputs(self, request: scheduling_request.SchedulingRequest) -> tuple[object, ...]:
        """Return what a state follows from, except the requesting pod and the assumed ones that the watch has shown."""
        cluster, gang = self._cluster, request.gang
        pods = cluster.get_gang_change(gang), cluster.get_gang_size(gang, observed=0)
        return gang, *pods, request.requests, _list_devices(request), cluster.has_slices, self._assumed.unseen


def _is_uniform(
    request: scheduling_request.SchedulingRequest, status: GangStatus, pods: Mapping[str, object_info.PodInfo]
) -> bool:
    """True if all pods of a gang exist and request the same, so that each unplaced one has a slot of its own."""
    own, kinds = pods.get(request.uid), {id(pod.requests): pod.requests for pod in pods.values()}
    return (
        own is not None
        and not own.node
        and own.rank == request.rank
        and set(kinds.values()) == {request.requests}
        and len(pods) == status.size == len(status.placed_workers) + len(status.slot_ranks)
        and len(status.placed) == len(status.placed_workers)
    )


class _AnnouncedGang:
    """The state of a gang of equal pods, to which announced pods are added."""

    def __init__(
        self,
        inputs: tuple[object, ...],
        status: GangStatus,
        pods: Mapping[str, object_info.PodInfo],
        assumed: assumed_pods.AssumedPods,
    ) -> None:
        self.inputs, self._status, self._position = inputs, status, assumed.change_log.position
        self._placed, self._slot_ranks = list(status.placed), list(status.slot_ranks)
        self._nodes = {peer.node for peer in status.placed}
        placed_uids = {peer.uid for peer in status.placed}
        self._waiting = {uid: pod for uid, pod in pods.items() if uid not in placed_uids}

    def continue_for(
        self, request: scheduling_request.SchedulingRequest, assumed: assumed_pods.AssumedPods
    ) -> GangStatus | None:
        """Return the state for the next request; None if something else has changed, after which this is invalid."""
        nodes, self._position = assumed.change_log.read_since(self._position), assumed.change_log.position
        if nodes is None or not self._nodes.isdisjoint(nodes):
            return None
        for assumed_pod in [pod for node in nodes for pod in assumed.list_on_node(node) if pod.gang == request.gang]:
            pod = self._waiting.pop(assumed_pod.uid, None)
            if pod is None or assumed_pod.requests != request.requests:
                return None
            del self._slot_ranks[bisect.bisect_left(self._slot_ranks, pod.rank)]
            bisect.insort(self._placed, PlacedPeer(assumed_pod.rank, pod.uid, assumed_pod.node, pod.requests))
            self._nodes.add(assumed_pod.node)
        own = self._waiting.get(request.uid)
        if own is None or own.rank != request.rank:
            return None
        placed, slot_ranks = list(self._placed), list(self._slot_ranks)  # decisions keep them
        return msgspec.structs.replace(
            self._status,
            placed=placed,
            slot_ranks=slot_ranks,
            unplaced=len(slot_ranks),
            planning_request=request.requests,
            placed_workers=placed,
            retried_uids=frozenset((request.uid,)),
        )
