"""Reuses a gang's plan while its pods are placed as planned and nothing else in the cluster has changed.

The unfilled leaves of the plan are then optimal for the unplaced pods, because every choice for these was also a choice
for the whole gang. The planner runs again after a change of any node outside the plan's leaves, if slots in these
leaves increase, if a change allows more bandwidth, or if the gang's size changes.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import gang_capacity, gang_status, planner
from railwright.fabric.placement.nodes import node_index, node_slots
from railwright.fabric.placement.state import assumed_pods, cluster_state
from railwright.fabric.workloads import membership

_MAX_GANGS = 64  # cached gangs; schedulers place one gang after the other


class _CachedPlan(msgspec.Struct, frozen=True):
    """A plan, and what it was based on."""

    plan: planner.Plan
    size: int  # of the gang
    remaining: int
    slots_by_leaf: Mapping[topology.Domain, int]  # slots of the plan's leaves and of the leaves of the peers
    positions: tuple[int, int]  # positions in the change logs
    inferred: frozenset[tuple[str, str]]  # (uid, node) of pods that were assumed for this request only


class PlanInput(msgspec.Struct, frozen=True):
    """The input of a plan."""

    key: membership.GangKey
    gang: gang_status.GangStatus
    index: node_index.NodeIndex
    capacity: gang_capacity.GangCapacity
    inferred: Sequence[assumed_pods.AssumedPod]  # pods that are assumed for this request only


class PlanCache:
    """The latest plans of the most recently used gangs."""

    def __init__(self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods) -> None:
        self._change_logs = (cluster.change_log, assumed.change_log)
        self._plans: OrderedDict[Hashable, _CachedPlan] = OrderedDict()

    def store(self, given: PlanInput, plan: planner.Plan) -> None:
        """Cache a new plan."""
        gang, index = given.gang, given.index
        if not given.key or not plan.is_complete:
            return
        if not plan.rails and any(node_class.capacity.rails for node_class in index.classes):
            return
        peer_leaves = {index.leaf_by_node.get(peer.node, topology.NO_DOMAIN) for peer in gang.placed}
        cache_key = (given.key, index.signature.key)
        self._plans[cache_key] = _CachedPlan(
            plan=plan,
            size=gang.size,
            remaining=gang.remaining_slots,
            slots_by_leaf={leaf: _count_slots(given.capacity, leaf, plan) for leaf in {*plan.leaves, *peer_leaves}},
            positions=(self._change_logs[0].position, self._change_logs[1].position),
            inferred=_list_places(given.inferred),
        )
        self._plans.move_to_end(cache_key)
        if len(self._plans) > _MAX_GANGS:
            self._plans.popitem(last=False)

    def find(self, given: PlanInput, bandwidth_of_placed: node_slots.Bandwidth) -> planner.Plan | None:
        """Return the unfilled part of the gang's plan, or None if the planner has to run again."""
        gang, index = given.gang, given.index
        last = self._plans.get((given.key, index.signature.key))
        if last is None or gang.size != last.size or gang.remaining_slots > last.remaining:
            return None
        changed_nodes = {node for _, node in last.inferred ^ _list_places(given.inferred)}
        for log, position in zip(self._change_logs, last.positions, strict=True):
            changes = log.read_since(position)
            if changes is None:
                return None
            changed_nodes.update(changes)
        if any(index.leaf_by_node.get(name) not in last.slots_by_leaf for name in changed_nodes):
            return None
        if changed_nodes and last.plan.bandwidth < bandwidth_of_placed:
            return None
        slots_by_leaf = {leaf: _count_slots(given.capacity, leaf, last.plan) for leaf in last.slots_by_leaf}
        if any(slots > last.slots_by_leaf[leaf] for leaf, slots in slots_by_leaf.items()):
            return None
        left = {leaf: slots_by_leaf[leaf] for leaf in last.plan.leaves if slots_by_leaf[leaf]}
        if sum(left.values()) < gang.remaining_slots:
            return None
        return msgspec.structs.replace(last.plan, leaves=tuple(left), slots_by_leaf=left)


def _list_places(pods: Iterable[assumed_pods.AssumedPod]) -> frozenset[tuple[str, str]]:
    return frozenset((pod.uid, pod.node) for pod in pods)


def _count_slots(capacity: gang_capacity.GangCapacity, leaf: topology.Domain, plan: planner.Plan) -> int:
    """Return the slots of a leaf at a plan's bandwidth."""
    counts = capacity.nodes.get(leaf, {})
    return sum(nodes * plan.count_slots(node_class.capacity) for node_class, nodes in counts.items())
