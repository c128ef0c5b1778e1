"""Reuses a gang's plan while its pods are placed as planned and nothing else in the cluster has changed.

The unfilled leaves of the plan are then optimal for the unplaced pods, because every choice for these was also a choice
for the whole gang. The planner runs again after a change of any node outside the plan's leaves, if slots in these
leaves increase, if a change allows more bandwidth, or if the gang's size changes.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import gang_status, planner
from railwright.fabric.placement.nodes import node_index
from railwright.fabric.placement.state import assumed_pods, cluster_state
from railwright.fabric.workloads import membership

_MAX_GANGS = 64  # cached gangs; schedulers place one gang after the other


class _CachedPlan(msgspec.Struct, frozen=True):
    plan: planner.Plan
    size: int  # of the gang
    remaining: int
    slots_by_leaf: Mapping[topology.Domain, int]  # slots of the plan's leaves and of the leaves of the peers
    positions: tuple[int, int]  # positions in the change logs


class _BandwidthFloor(msgspec.Struct, frozen=True):
    placed: int  # number of peers placed when the last plan was made
    bandwidth_of_placed: planner.Bandwidth  # planned bandwidth of these peers
    planned: planner.Bandwidth  # planned bandwidth of the others


class PlanCache:
    """The latest plans of the most recently used gangs."""

    def __init__(self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods) -> None:
        self._change_logs = (cluster.change_log, assumed.change_log)
        self._plans: OrderedDict[Hashable, _CachedPlan] = OrderedDict()
        self._floors: OrderedDict[membership.GangKey, _BandwidthFloor] = OrderedDict()

    def get_bandwidth_of_placed(self, gang: membership.GangKey, status: gang_status.GangStatus) -> planner.Bandwidth:
        """Return the planned bandwidth of the placed peers; 1 if none is placed or their plan is unknown."""
        last = self._floors.get(gang)
        if last is None or not status.placed:
            return 1.0
        return (
            min(last.bandwidth_of_placed, last.planned)
            if len(status.placed) > last.placed
            else last.bandwidth_of_placed
        )

    def record_bandwidth(self, gang: membership.GangKey, status: gang_status.GangStatus, plan: planner.Plan) -> None:
        """Record a plan's bandwidth. It limits the gang only after a pod has been placed by this plan."""
        if gang and plan.is_complete:
            value = self.get_bandwidth_of_placed(gang, status)
            self._floors[gang] = _BandwidthFloor(
                placed=len(status.placed), bandwidth_of_placed=value, planned=plan.bandwidth
            )
            self._floors.move_to_end(gang)
            if len(self._floors) > _MAX_GANGS:
                self._floors.popitem(last=False)

    def store(
        self,
        gang: membership.GangKey,
        index: node_index.NodeIndex,
        status: gang_status.GangStatus,
        capacity: planner.GangCapacity,
        plan: planner.Plan,
    ) -> None:
        """Cache a new plan."""
        if (
            not gang
            or not plan.is_complete
            or (not plan.rails and any(grade.capacity.rails for grade in index.evaluations))
        ):
            return
        peer_leaves = {index.leaf_by_node.get(node, topology.NOWHERE) for _, _, node in status.placed}
        key = (gang, index.signature.key)
        self._plans[key] = _CachedPlan(
            plan=plan,
            size=status.size,
            remaining=status.remaining_slots,
            slots_by_leaf={leaf: _count_slots(capacity, leaf, plan) for leaf in {*plan.leaves, *peer_leaves}},
            positions=(self._change_logs[0].position, self._change_logs[1].position),
        )
        self._plans.move_to_end(key)
        if len(self._plans) > _MAX_GANGS:
            self._plans.popitem(last=False)

    def find(
        self,
        gang: membership.GangKey,
        index: node_index.NodeIndex,
        status: gang_status.GangStatus,
        capacity: planner.GangCapacity,
    ) -> planner.Plan | None:
        """Return the unfilled part of the gang's plan, or None if the planner has to run again."""
        last = self._plans.get((gang, index.signature.key))
        if last is None or status.size != last.size or status.remaining_slots > last.remaining:
            return None
        is_changed = False
        for log, position in zip(self._change_logs, last.positions, strict=True):
            changed_nodes = log.read_since(position)
            if changed_nodes is None or any(
                index.leaf_by_node.get(name) not in last.slots_by_leaf for name in changed_nodes
            ):
                return None
            is_changed = is_changed or bool(changed_nodes)
        if is_changed and last.plan.bandwidth < self.get_bandwidth_of_placed(gang, status):
            return None
        slots_by_leaf = {leaf: _count_slots(capacity, leaf, last.plan) for leaf in last.slots_by_leaf}
        if any(slots > last.slots_by_leaf[leaf] for leaf, slots in slots_by_leaf.items()):
            return None
        left = {leaf: slots_by_leaf[leaf] for leaf in last.plan.leaves if slots_by_leaf[leaf]}
        if sum(left.values()) < status.remaining_slots:
            return None
        return msgspec.structs.replace(last.plan, leaves=tuple(left), slots_by_leaf=left)


def _count_slots(capacity: planner.GangCapacity, leaf: topology.Domain, plan: planner.Plan) -> int:
    """Return the slots of a leaf at a plan's bandwidth."""
    class_counts = capacity.class_counts.get(leaf, {})
    return sum(
        nodes * plan.count_slots(capacity.node_capacities[node_class]) for node_class, nodes in class_counts.items()
    )
