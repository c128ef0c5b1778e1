"""Reuses a gang's plan while its pods are placed as planned and nothing else in the cluster has changed.

The unfilled leaves of the plan are then optimal for the unplaced pods, because every choice for these was also a choice
for the whole gang. The planner runs again after a change of any node outside the plan's leaves, if slots in these
leaves increase, if a change allows more bandwidth, or if the gang's size changes.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import gang_capacity, planner
from railwright.fabric.placement.nodes import node_index, node_slots
from railwright.fabric.placement.state import assumed_pods, cluster_state, gang_status
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

    def store(self, plan_input: PlanInput, plan: planner.Plan) -> None:
        """Cache a new plan."""
        gang, index = plan_input.gang, plan_input.index
        if not plan_input.key or not plan.is_complete:
            return
        if not plan.rails and any(node_class.capacity.rails for node_class in index.classes):
            return
        peer_leaves = {index.leaf_by_node.get(peer.node, topology.NO_DOMAIN) for peer in gang.placed}
        cache_key = (plan_input.key, index.signature.key)
        self._plans[cache_key] = _CachedPlan(
            plan=plan,
            size=gang.size,
            remaining=gang.remaining_slots,
            slots_by_leaf={
                leaf: _count_slots(plan_input.capacity, leaf, plan) for leaf in {*plan.leaves, *peer_leaves}
            },
            positions=(self._change_logs[0].position, self._change_logs[1].position),
            inferred=_list_assumed_places(plan_input.inferred),
        )
        self._plans.move_to_end(cache_key)
        if len(self._plans) > _MAX_GANGS:
            self._plans.popitem(last=False)

    def find(self, plan_input: PlanInput, bandwidth_of_placed: node_slots.Bandwidth) -> planner.Plan | None:
        """Return the unfilled part of the gang's plan, or None if the planner has to run again."""
        gang, index = plan_input.gang, plan_input.index
        cached = self._plans.get((plan_input.key, index.signature.key))
        if cached is None or gang.size != cached.size or gang.remaining_slots > cached.remaining:
            return None
        changed_nodes = {node for _, node in cached.inferred ^ _list_assumed_places(plan_input.inferred)}
        for log, position in zip(self._change_logs, cached.positions, strict=True):
            changes = log.read_since(position)
            if changes is None:
                return None
            changed_nodes.update(changes)
        if any(index.leaf_by_node.get(name) not in cached.slots_by_leaf for name in changed_nodes):
            return None
        if changed_nodes and cached.plan.bandwidth < bandwidth_of_placed:
            return None
        slots_by_leaf = {leaf: _count_slots(plan_input.capacity, leaf, cached.plan) for leaf in cached.slots_by_leaf}
        if any(slots > cached.slots_by_leaf[leaf] for leaf, slots in slots_by_leaf.items()):
            return None
        open_slots = {leaf: slots_by_leaf[leaf] for leaf in cached.plan.leaves if slots_by_leaf[leaf]}
        if sum(open_slots.values()) < gang.remaining_slots:
            return None
        return msgspec.structs.replace(cached.plan, leaves=tuple(open_slots), slots_by_leaf=open_slots)


def _list_assumed_places(pods: Iterable[assumed_pods.AssumedPod]) -> frozenset[tuple[str, str]]:
    return frozenset((pod.uid, pod.node) for pod in pods)


def _count_slots(capacity: gang_capacity.GangCapacity, leaf: topology.Domain, plan: planner.Plan) -> int:
    """Return the slots of a leaf at a plan's bandwidth."""
    counts = capacity.nodes.get(leaf, {})
    return sum(nodes * plan.count_slots(node_class.capacity) for node_class, nodes in counts.items())
