"""The scheduling state of a gang: placed peers, unplaced pods, and the target leaf of each rank.

Assigns ranks to the leaves of a plan in order. The planner chooses the leaves.
"""

import bisect
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import resources, topology
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import assumed_pods, cluster_state
from railwright.fabric.workloads import membership

_Waiting = tuple[membership.Rank, resources.Amounts]
Mate = tuple[membership.Rank, str, str]
"""(rank, uid, node) of a placed peer."""


class GangStatus(msgspec.Struct, frozen=True):
    """The gang of a request. Unplaced pods count only if they request devices, unless no pod of the gang does.

    The plan has slots. A slot has the size of the largest pod; consecutive smaller pods may share one.
    """

    size: int
    placed: Sequence[Mate]  # by rank
    slot_ranks: Sequence[membership.Rank]  # first rank of each slot of unplaced pods that exist, in order
    missing: int  # pods that do not exist yet; they count as workers after all others
    unplaced: int  # unplaced pods, including the requesting one and those that do not exist yet
    planning_request: resources.Amounts  # requests of the pod that the plan is based on: the size of a slot
    placed_workers: Sequence[
        Mate
    ]  # placed peers that request devices (launchers do not), or all if no pod of the gang does
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
    assumed: assumed_pods.AssumedPods,
) -> GangStatus:
    """Return the state of the requesting pod's gang; a gang of one if the pod has none.

    Launchers are left out of the plan: they request almost nothing, so a plan based on one would fit anywhere, and a
    launcher counted as a worker would need a node too many. Pods that do not exist yet count as workers.
    """
    retried_uids = assumed.find_stale_assumptions(request.uid)
    placed = _list_placed(request, cluster, assumed, retried_uids)
    placed_uids = {request.uid, *(uid for _, uid, _ in placed)}
    waiting = [peer for uid, peer in cluster.get_gang(request.gang).items() if uid not in placed_uids]
    size = cluster.get_gang_size(request.gang, observed=len(placed_uids) + len(waiting)) if request.gang else 1
    devices = {*request.accelerators, *(rail.resource for rail in request.fabric.rails if rail.resource)}
    workers = [peer for peer in waiting if not devices.isdisjoint(peer.requests)]
    missing = max(0, size - len(placed) - len(waiting) - 1)
    placed_workers = _select_device_pods(placed, devices, cluster, assumed)

    def build(unplaced: Sequence[_Waiting], planning_request: resources.Amounts) -> GangStatus:
        return GangStatus(
            size=size,
            placed=placed,
            slot_ranks=_assign_slots(unplaced, planning_request),
            missing=missing,
            unplaced=len(unplaced) + missing,
            planning_request=planning_request,
            placed_workers=placed if not placed_workers and devices.isdisjoint(planning_request) else placed_workers,
            retried_uids=retried_uids,
        )

    if not devices.isdisjoint(request.requests):
        requesting_pod = (request.rank, request.requests)
        return build(
            [requesting_pod, *((peer.rank, peer.requests) for peer in workers)],
            _select_planning_request(request, workers),
        )
    if not workers:
        equal_pods = [(peer.rank, request.requests) for peer in waiting]
        return build([(request.rank, request.requests), *equal_pods], request.requests)
    largest = max(workers, key=lambda peer: sum(peer.requests.get(name, 0) for name in devices))
    return build([(peer.rank, peer.requests) for peer in workers], largest.requests)


def _assign_slots(pods: Sequence[_Waiting], slot_size: resources.Amounts) -> Sequence[membership.Rank]:
    """Return the first rank of each slot.

    Consecutive pods share a slot as long as their total request fits in `slot_size`. The total includes rails, so pods
    that need exclusive rails never share a slot.
    """
    distinct_requests = {id(requests): requests for _, requests in pods}
    if all(requests == slot_size for requests in distinct_requests.values()):
        return sorted(rank for rank, _ in pods)
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


def _select_device_pods(
    placed: Sequence[Mate],
    devices: Collection[str],
    cluster: cluster_state.ClusterState,
    assumed: assumed_pods.AssumedPods,
) -> Sequence[Mate]:
    """Return the placed peers that request devices. Equal pods share one requests object: results are cached by id."""
    pods = cluster.pods
    uses_devices: dict[int, bool] = {}
    device_pods = []
    for peer in placed:
        pod = pods.get(peer[1]) or assumed.get(peer[1])
        if pod is None:
            continue
        key = id(pod.requests)
        if key not in uses_devices:
            uses_devices[key] = any(name in devices for name in pod.requests)
        if uses_devices[key]:
            device_pods.append(peer)
    return device_pods


def _select_planning_request(
    request: scheduling_request.SchedulingRequest, workers: Sequence[cluster_state.PodInfo]
) -> resources.Amounts:
    """Return the requests of the pod with the most accelerators. A smaller pod would overestimate the slots."""

    def size(requests: resources.Amounts) -> int:
        return sum([requests.get(name, 0) for name in request.accelerators])

    distinct_requests = {
        id(worker.requests): worker.requests for worker in workers
    }  # equal pods share one requests object
    largest = max(distinct_requests.values(), key=size, default=request.requests)
    return largest if size(largest) > size(request.requests) else request.requests


def list_unplaced(
    gang: membership.GangKey, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods
) -> Iterator[cluster_state.PodInfo]:
    """Return the existing pods of a gang that are neither bound nor assumed."""
    assumed_uids = {assumed_pod.uid for assumed_pod in assumed.list_of_gang(gang)}
    return (pod for uid, pod in cluster.get_gang(gang).items() if not pod.node and uid not in assumed_uids)


def is_single_pod(request: scheduling_request.SchedulingRequest, cluster: cluster_state.ClusterState) -> bool:
    """True if the pod is the only pod of its job, by the declared size and the pods that exist."""
    gang = cluster.get_gang(request.gang)
    observed = len(gang) + (request.uid not in gang)
    return not request.gang or cluster.get_gang_size(request.gang, observed=observed) == 1


def _list_placed(
    request: scheduling_request.SchedulingRequest,
    cluster: cluster_state.ClusterState,
    assumed: assumed_pods.AssumedPods,
    retried_uids: frozenset[str],
) -> list[Mate]:
    """Return the peers that are bound or assumed, by rank. An observed binding takes precedence over an assumption."""
    placed = {
        pod.uid: (pod.rank, pod.uid, pod.node)
        for pod in cluster.get_gang(request.gang).values()
        if pod.node and pod.uid != request.uid
    }
    for assumed_pod in assumed.list_of_gang(request.gang):
        if assumed_pod.uid not in retried_uids:
            placed.setdefault(assumed_pod.uid, (assumed_pod.rank, assumed_pod.uid, assumed_pod.node))
    return sorted(placed.values())


def list_nearest_leaves(
    rank: membership.Rank, gang: GangStatus, leaf_by_node: Mapping[str, topology.Domain]
) -> tuple[list[topology.Domain], topology.Domain | None]:
    """Return the distinct leaves of the placed peers, and the leaf of the next peer in rank order or None.

    The leaf of the previous peer comes first, then that of the next, then those of lower ranks in descending order. The
    last rank is followed by the first if all pods exist.
    """
    before = [node for other, _, node in reversed(gang.placed_workers) if other < rank]
    after = [node for other, _, node in gang.placed_workers if not other < rank]
    previous_node, next_node = before[:1], after[:1]
    if not gang.missing:
        next_node = next_node or before[-1:]
    leaves = (leaf_by_node.get(node, topology.NOWHERE) for node in (*previous_node, *next_node, *before, *after))
    next_leaf = leaf_by_node.get(next_node[0], topology.NOWHERE) if next_node else topology.NOWHERE
    return [leaf for leaf in dict.fromkeys(leaves) if leaf != topology.NOWHERE], next_leaf or None


def find_target_leaf(
    rank: membership.Rank,
    gang: GangStatus,
    order: Sequence[topology.Domain],
    slots_by_leaf: Mapping[topology.Domain, int],
    leaf_by_node: Mapping[str, topology.Domain],
) -> topology.Domain | None:
    """Return the target leaf of a rank if the plan's leaves are filled by rank, or None if they are full.

    A run of ranks between two placed peers starts in the leaf of the previous peer and ends in the leaf of the next
    peer, as far as these have free slots; the last rank is followed by the first. Runs that fit on one leaf are filled
    first, short ones before long ones. Other runs span several leaves in any case.
    """
    free = dict(slots_by_leaf)
    runs = _close_ring(list(_list_rank_runs(gang, leaf_by_node)), gang, leaf_by_node)
    for ranks, previous_leaf, next_leaf in sorted(
        runs, key=lambda run: _rank_urgency(run[0], run[1], run[2], slots_by_leaf)
    ):
        rank_leaves = _fill_run(len(ranks), previous_leaf, next_leaf, order, free)
        if rank in ranks:
            return rank_leaves[ranks.index(rank)]
    return next((leaf for leaf in order if free.get(leaf, 0) > 0), None)


_RankRun = tuple[Sequence[membership.Rank], topology.Domain | None, topology.Domain | None]
"""Consecutive unplaced ranks, the leaf of the previous peer, the leaf of the next peer."""


def _close_ring(
    runs: list[_RankRun], gang: GangStatus, leaf_by_node: Mapping[str, topology.Domain]
) -> Sequence[_RankRun]:
    """Close the ring: the last run ends at the first rank's leaf, if all pods exist and the first rank is placed.

    An unplaced first rank stays in the run that follows it, so that ranks ascend from leaf to leaf.
    """
    if gang.placed_workers and runs and not gang.missing and runs[0][1] is not None and runs[-1][2] is None:
        ranks, previous_leaf, _ = runs.pop()
        runs.append((ranks, previous_leaf, leaf_by_node.get(gang.placed_workers[0][2], topology.NOWHERE)))
    return runs


def _list_rank_runs(gang: GangStatus, leaf_by_node: Mapping[str, topology.Domain]) -> Iterator[_RankRun]:
    """Yield the runs of unplaced ranks in order."""
    begin, previous_leaf = 0, None
    for rank, _, node in gang.placed_workers:
        end = bisect.bisect_left(gang.slot_ranks, rank, lo=begin)
        next_leaf = leaf_by_node.get(node, topology.NOWHERE)
        if end > begin:
            yield gang.slot_ranks[begin:end], previous_leaf, next_leaf
        begin, previous_leaf = end, next_leaf
    if begin < len(gang.slot_ranks):
        yield gang.slot_ranks[begin:], previous_leaf, None


def _rank_urgency(
    ranks: Sequence[membership.Rank],
    previous_leaf: topology.Domain | None,
    next_leaf: topology.Domain | None,
    slots_by_leaf: Mapping[topology.Domain, int],
) -> tuple[bool, int]:
    neighbours = {leaf for leaf in (previous_leaf, next_leaf) if leaf is not None}
    fits_on_one_leaf = len(neighbours) == 1 and len(ranks) <= slots_by_leaf.get(min(neighbours), 0)
    return not fits_on_one_leaf, len(ranks)


def _fill_run(
    count: int,
    previous_leaf: topology.Domain | None,
    next_leaf: topology.Domain | None,
    order: Sequence[topology.Domain],
    free: dict[topology.Domain, int],
) -> list[topology.Domain | None]:
    """Return the leaf of each rank of one run, and subtract them from `free`."""
    front = _take(previous_leaf, count, free)
    back = _take(next_leaf, count - len(front), free)
    middle: list[topology.Domain | None] = []
    for leaf in order:
        middle += _take(leaf, count - len(front) - len(middle) - len(back), free)
    missing = count - len(front) - len(middle) - len(back)
    return [*front, *middle, *([None] * missing), *back]


def _take(leaf: topology.Domain | None, count: int, free: dict[topology.Domain, int]) -> list[topology.Domain | None]:
    taken = min(max(0, count), max(0, free.get(leaf, 0))) if leaf is not None else 0
    if leaf is not None and taken:
        free[leaf] -= taken
    return [leaf] * taken
