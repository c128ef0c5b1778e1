"""Keeps each segment of a gang, consecutive ranks that share an NVLink domain, in one leaf.

The planner (`planner.GangCapacity`) counts the slots of a leaf that whole segments can use. This module numbers the
segments by rank, and finds the planned leaf of the requesting pod's segment. If a pod of the segment is
placed, it refuses all other leaves. Free room affects only the plan, because it may have changed. For example a gang of
12 in segments of 4, with rank 5 placed in leaf b:

| | a: 6 free nodes | b: 4 free nodes | c: 3 free nodes |
|---|---|---|---|
| slots of the plan | 4 | 3, the rest of segment 1 | 0 |
| rank 4, of segment 1 | refused: its segment is in b | goes here | refused |
| rank 0, of segment 0 | planned here | 1 node is left beside segment 1 | holds 3 of 4 pods |
| rank 8, of segment 2 | planned here, unless segment 0 is | | |
"""

from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.gangs import planner, rank_order
from railwright.fabric.placement.state import cluster_state, declared_sizes, gang_status
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode
from railwright.fabric.workloads import membership


class Segments(msgspec.Struct, frozen=True):
    """The segments of a gang, as one of its pods sees them. They are numbered by rank, from 0."""

    size: int  # pods of a whole segment, at most those of the gang
    own: int  # number of the requesting pod's segment
    own_pods: int  # the last segment may have fewer than `size`
    leaves: Mapping[int, topology.Domain]  # of the segments that have a placed pod
    count: int  # of all segments; an author declares it
    existing: int  # of those up to the last one that has a pod that exists
    peers: Mapping[topology.Domain, int]  # leaf -> placed peers of segments of the full size
    rest: int  # unplaced pods of the last segment if it has fewer than `size`
    rest_leaf: topology.Domain | None  # of its placed pods
    reserved: Mapping[topology.Domain, int]  # leaf -> unplaced pods of the segments that are there

    def limit_capacity(self, capacity: planner.GangCapacity) -> planner.GangCapacity:
        """Return the part of the capacity that whole segments can use."""
        return msgspec.structs.replace(
            capacity, segment=self.size, peers=self.peers, rest=self.rest, rest_leaf=self.rest_leaf
        )

    def find_target_leaf(self, plan: planner.Plan) -> topology.Domain | None:
        """Return the leaf with pods of this segment, otherwise a leaf of the plan; None if these are full."""
        if self.own in self.leaves:
            return self.leaves[self.own]
        slots = {leaf: max(0, plan.slots_by_leaf[leaf] - self.reserved.get(leaf, 0)) for leaf in plan.leaves}
        count = self.count
        beside = next((leaf for leaf in plan.leaves if slots[leaf] % self.size), None)
        if beside is not None and self.rest and self.rest_leaf is None:  # the last segment has slots of its own there
            if self.own_pods < self.size:
                return beside
            count -= 1
        free = {leaf: free_slots // self.size for leaf, free_slots in slots.items()}
        # Segments without any pod come last. The run of ranks that they end is longer than all others, and than the
        # room: how much longer changes nothing.
        most = 2 * self.existing + sum(free.values()) + 1
        waiting = [number for number in range(min(count, most)) if number not in self.leaves]
        # each segment counts as one pod, so that neighbours in rank order are on one leaf
        placed = sorted(self.leaves)
        ring = rank_order.Ring(waiting, placed, [self.leaves[number] for number in placed], is_closed=True)
        return ring.find_target_leaf(self.own, plan.leaves, free)

    def find_refusal(self, leaf: topology.Domain) -> reason.Reason | None:
        """Return why a leaf is refused to the requesting pod's segment; None if it is allowed."""
        if not leaf:
            message = f"the node is in no NVLink domain, but all pods of segment {self.own} of the gang share one"
            return reason.Reason(PlacementCode.SEGMENT_ELSEWHERE, message)
        home = self.leaves.get(self.own)
        if home is None or leaf == home:
            return None
        here, there = topology.format_domain(leaf), topology.format_domain(home)
        message = f"segment {self.own} of the gang is in {there}, and {here} is another NVLink domain"
        return reason.Reason(PlacementCode.SEGMENT_ELSEWHERE, message)


def find_segments(
    request: scheduling_request.SchedulingRequest,
    cluster: cluster_state.ClusterState,
    leaf_by_node: Mapping[str, topology.Domain],
    uncertain: Collection[str] = (),
) -> Segments:
    """Return the segments of the requesting pod's gang. The pod must have one (`has_segment` of its request).

    The number of a pod decides its segment. It is the index that the framework gives, even if pods with lower indexes
    do not exist. Without indexes it is the place among the existing pods in rank order; it may change while pods are
    missing, so until all exist, no segment has a domain. A pod that has ended keeps its number and needs no slot. If
    the declared size of the gang is not known yet, because its watch may lag, the last segment counts as whole. Assumed
    pods whose UIDs are in `uncertain` do not count.
    """
    devices = request.devices
    placed = gang_status.list_placed_peers(request.gang, cluster, except_uid=request.uid, ignored_uids=uncertain)
    pods = cluster.get_gang(request.gang)
    ended = {pod.uid: pod.rank for pod in cluster.list_ended(request.gang) if not devices.isdisjoint(pod.requests)}
    ranks = {uid: pod.rank for uid, pod in pods.items() if not devices.isdisjoint(pod.requests)}
    ranks |= {peer.uid: peer.rank for peer in placed if not devices.isdisjoint(peer.requests)}
    ranks[request.uid] = request.rank
    observed = len({*pods, *ranks})
    missing = cluster.get_gang_size(request.gang, observed=observed) - observed
    ranks = {**ended, **ranks}
    position, is_known = _number_pods(ranks)
    total = max(len(ranks) + missing, max(position.values()) + 1)
    if request.is_size_declared and not cluster.sizes.get_declared(request.gang):
        total = -(-total // request.segment) * request.segment
    size = min(request.segment, total)
    leaves: dict[int, topology.Domain] = {}
    counts = Counter([position[uid] // size for uid in ended])  # pods of each segment that need no slot any more
    for peer in placed:  # by rank
        if (is_known or not missing) and peer.uid in position and (leaf := leaf_by_node.get(peer.node)):
            number = position[peer.uid] // size
            leaves.setdefault(number, leaf)
            counts[number] += 1
    last = (total - 1) // size

    def count_pods(number: int) -> int:
        return min(size, total - number * size)

    peers: Counter[topology.Domain] = Counter()
    reserved: Counter[topology.Domain] = Counter()
    for number, leaf in leaves.items():
        peers[leaf] += counts[number] if number < total // size else 0
        reserved[leaf] += count_pods(number) - counts[number]
    own = position[request.uid] // size
    return Segments(
        size=size,
        own=own,
        own_pods=count_pods(own),
        leaves=leaves,
        count=last + 1,
        existing=max(position.values()) // size + 1,
        peers=peers,
        rest=count_pods(last) - counts[last] if total % size else 0,
        rest_leaf=leaves.get(last) if total % size else None,
        reserved=reserved,
    )


_MAX_INDEX = declared_sizes.MAX_SIZE  # of pods of a gang; a longer number is none


def _number_pods(ranks: Mapping[str, membership.Rank]) -> tuple[Mapping[str, int], bool]:
    """Return the number of each pod in its gang, and True if pods that do not exist yet cannot change it.

    The index of a framework numbers all pods, or the workers after their leaders.
    """
    numbers = {uid: rank.index for uid, rank in ranks.items()}
    leaders = sorted((uid for uid, rank in ranks.items() if not rank.role), key=ranks.__getitem__)
    if len({*numbers.values()}) < len(numbers) or any(numbers[uid] > _MAX_INDEX for uid in leaders):
        workers = {uid: len(leaders) + rank.index for uid, rank in ranks.items() if rank.role}
        numbers = {**workers, **{uid: place for place, uid in enumerate(leaders)}}
    is_known = all(not rank.role or rank.is_numbered for rank in ranks.values())
    if is_known and len({*numbers.values()}) == len(numbers) and max(numbers.values()) <= _MAX_INDEX:
        return numbers, True
    return {uid: place for place, uid in enumerate(sorted(ranks, key=ranks.__getitem__))}, False
