"""Keeps the segments of a gang in one leaf each: consecutive ranks that share an NVLink domain, the closest one.

The planner counts the slots of a leaf that whole segments can use (`GangCapacity.cut`). This module numbers the
segments by rank, and decides for the requesting pod's: which leaf it goes to by the plan, and which leaves the filter
leaves to it. For example a gang of 12 in segments of 4, with rank 5 placed in leaf b:

| | a: 6 free nodes | b: 4 free nodes | c: 3 free nodes |
|---|---|---|---|
| slots of the plan | 4 | 3, the rest of segment 1 | 0 |
| rank 4, of segment 1 | filtered: its segment is in b | goes here | filtered |
| rank 0, of segment 0 | goes here | filtered: 1 node is left beside segment 1 | filtered: holds 3 of 4 pods |
| rank 8, of segment 2 | goes here, unless segment 0 did | filtered | filtered |
"""

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from railwright.fabric import resources, topology
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.gangs import gang_capacity, planner, rank_order
from railwright.fabric.placement.state import assumed_pods, cluster_state, gang_status
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code
from railwright.fabric.workloads import membership


class Segments(msgspec.Struct, frozen=True):
    """The segments of a gang, as one of its pods sees them. They are numbered by rank, from 0."""

    size: int  # pods of a whole segment, at most those of the gang
    own: int  # number of the requesting pod's segment
    own_pods: int  # the last segment may have fewer than `size`
    missing: int  # pods that do not exist yet, if the numbers are therefore not known
    leaves: Mapping[int, topology.Domain]  # of the segments that have a placed pod
    count: int  # of all segments; an author declares it
    existing: int  # of those that have a pod that exists, which are the first ones
    peers: Mapping[topology.Domain, int]  # leaf -> placed peers of segments of the full size
    rest: int  # unplaced pods of the last segment if it has fewer than `size`
    rest_leaf: topology.Domain | None  # of its placed pods
    reserved: Mapping[topology.Domain, int]  # leaf -> unplaced pods of the segments that are there

    def limit(self, capacity: gang_capacity.GangCapacity) -> gang_capacity.GangCapacity:
        """Return the capacity that segments can use."""
        return msgspec.structs.replace(
            capacity, segment=self.size, peers=self.peers, rest=self.rest, rest_leaf=self.rest_leaf
        )

    def find_target_leaf(self, plan: planner.Plan) -> topology.Domain | None:
        """Return the leaf of the requesting pod's segment, by the plan if it has none yet; None if they are full."""
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
        whole = gang_status.GangStatus(
            size=len(self.leaves) + len(waiting),
            placed=(),
            slot_ranks=[_rank(number) for number in waiting],
            missing=0,
            unplaced=len(waiting),
            planning_request=resources.NO_AMOUNTS,
            placed_workers=[
                gang_status.PlacedPeer(_rank(number), "", str(number), resources.NO_AMOUNTS)
                for number in sorted(self.leaves)
            ],
        )
        leaf_by_node = {str(number): leaf for number, leaf in self.leaves.items()}
        return rank_order.find_target_leaf(_rank(self.own), whole, plan.leaves, free, leaf_by_node)

    def find_refusal(self, leaf: topology.Domain, slots: int) -> reason.Reason | None:
        """Return why the requesting pod may not go to a leaf with this number of free slots; None if it may."""
        if self.missing:
            return reason.make(Code.SEGMENT_UNKNOWN, missing=self.missing)
        name = topology.format_domain(leaf)
        home = self.leaves.get(self.own)
        if home is not None:
            if leaf == home:
                return None
            return reason.make(Code.SEGMENT_ELSEWHERE, segment=self.own, home=topology.format_domain(home), leaf=name)
        free = max(0, slots - self.reserved.get(leaf, 0)) if leaf else 0
        if free >= self.own_pods:
            return None
        return reason.make(Code.SEGMENT_TOO_LARGE, segment=self.own, pods=self.own_pods, free=free, leaf=name)


def _rank(number: int) -> membership.Rank:
    return membership.Rank(role=1, index=number, name="")


def find_segments(
    request: scheduling_request.SchedulingRequest,
    cluster: cluster_state.ClusterState,
    assumed: assumed_pods.Assumptions,
    find_leaf: Callable[[str], topology.Domain],
) -> Segments | None:
    """Return the segments of the requesting pod's gang; None if it has none, or the pod takes no devices.

    Pods that do not exist yet count after all others, unless their indexes are missing among those that exist. A single
    one counts as no rank if it may be the launcher, which MPI's operator can create after the workers. While the size
    that a controller declares is not known, because its watch is later than that of the pods, all segments are whole.
    """
    devices = request.devices
    if request.segment < 2 or not request.gang or devices.isdisjoint(request.requests):
        return None
    placed = gang_status.list_placed(
        request.gang,
        cluster,
        assumed,
        except_uid=request.uid,
        ignored_uids=assumed_pods.find_stale(assumed, request.uid),
    )
    pods = cluster.get_gang(request.gang)
    ranks = {uid: pod.rank for uid, pod in pods.items() if not devices.isdisjoint(pod.requests)}
    ranks |= {peer.uid: peer.rank for peer in placed if not devices.isdisjoint(peer.requests)}
    ranks[request.uid] = request.rank
    order = sorted(ranks, key=ranks.__getitem__)
    position = {uid: place for place, uid in enumerate(order)}
    observed = len({*pods, *ranks})
    missing = cluster.get_gang_size(request.gang, observed=observed) - observed
    may_be_launcher = missing == 1 and request.has_late_launcher
    if may_be_launcher and all(rank.role for rank in (*ranks.values(), *(pod.rank for pod in pods.values()))):
        total = len(order)
    elif request.is_size_declared and not cluster.get_declared_size(request.gang):
        total = -(-len(order) // request.segment) * request.segment
    else:
        total = len(order) + missing
    size = min(request.segment, total)
    indexes = sorted(rank.index for rank in ranks.values() if rank.role)
    leaves: dict[int, topology.Domain] = {}
    peers: Counter[topology.Domain] = Counter()
    counts: Counter[int] = Counter()
    for peer in placed:  # by rank
        if peer.uid in position and (leaf := find_leaf(peer.node)):
            number = position[peer.uid] // size
            leaves.setdefault(number, leaf)
            peers[leaf] += number < total // size
            counts[number] += 1
    last = (total - 1) // size

    def count_pods(number: int) -> int:
        return min(size, total - number * size)

    reserved: Counter[topology.Domain] = Counter()
    for number, leaf in leaves.items():
        reserved[leaf] += count_pods(number) - counts[number]
    own = position[request.uid] // size
    return Segments(
        size=size,
        own=own,
        own_pods=count_pods(own),
        missing=missing if indexes != list(range(len(indexes))) else 0,
        leaves=leaves,
        count=last + 1,
        existing=(len(order) - 1) // size + 1,
        peers=peers,
        rest=count_pods(last) - counts[last] if total % size else 0,
        rest_leaf=leaves.get(last) if total % size else None,
        reserved=reserved,
    )
