"""The input of an explanation: a plan and the cluster state it is based on, with the counts that explanations need."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.explain import node_limits
from railwright.fabric.placement.gangs import gang_capacity, planner
from railwright.fabric.placement.nodes import node_classes, node_slots
from railwright.fabric.placement.state import device_holders
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code
from railwright.fabric.workloads import membership

CLOSE = 1e-6  # bandwidth (0..1); smaller differences are rounding

ListPodsOn = Callable[[str], Iterable[device_holders.Holder]]
"""Node -> pods and claims that use its devices."""


class DiagnosisInput(msgspec.Struct, frozen=True):
    """The input of an explanation: a plan and the cluster state it is based on."""

    remaining: int  # slots that the unplaced pods need, each of the size of the largest pod
    plan: planner.Plan
    capacity: gang_capacity.GangCapacity
    class_of_node: Mapping[str, node_classes.NodeClass]
    peers_by_leaf: Mapping[topology.Domain, int]  # leaf -> number of placed peers
    list_pods_on: ListPodsOn
    list_offered_leaves: Callable[[], Collection[topology.Domain]]  # leaves with at least one offered node
    is_single_pod: bool = False  # single-pod job: partly used nodes are preferred to bandwidth
    same_rails: tuple[str, ...] = ()  # rails of claims that all pods of the gang must take; () if others would do
    begun: Sequence[membership.GangKey] = ()  # other gangs, whose nodes are not in `capacity`
    unplaced: int = 0  # unplaced pods, if smaller ones share slots; 0: as many as slots


def count_slots_by_leaf(
    inputs: DiagnosisInput, rails: int, min_bandwidth: node_slots.Bandwidth
) -> dict[topology.Domain, int]:
    """Return the slots of each labelled leaf on these rails at `min_bandwidth`; rails 0 and bandwidth 0 mean any."""
    any_bandwidth = not rails and not min_bandwidth
    slots = {
        node_class: len(node_class.capacity.slot_numa_factors)
        if any_bandwidth
        else node_slots.count(node_class.capacity, rails, min_bandwidth)
        for node_class in inputs.capacity.classes
    }
    slots_by_leaf = inputs.capacity.count_slots(slots)
    slots_by_leaf.pop(topology.NO_DOMAIN, None)
    return slots_by_leaf


def find_not_offered(inputs: DiagnosisInput, leaves: Iterable[topology.Domain]) -> reason.Some:
    """Return the leaves without an offered node."""
    offered = inputs.list_offered_leaves()
    return name_leaves(leaf for leaf in leaves if leaf not in offered)


def count_degradations(
    inputs: DiagnosisInput, leaves: Iterable[topology.Domain], min_bandwidth: node_slots.Bandwidth
) -> list[reason.Reason]:
    """Return the degradations of nodes of these leaves at or below `min_bandwidth`, with the number of nodes."""
    nodes: Counter[reason.Reason] = Counter()
    for leaf in leaves:
        for node_class, count in inputs.capacity.nodes[leaf].items():
            node_capacity = node_class.capacity
            better = node_slots.count(node_capacity, inputs.plan.rails, min_bandwidth + 2 * CLOSE)
            if node_capacity.slot_numa_factors and not better:
                nodes.update(dict.fromkeys(node_limits.list_degradations(node_class.evaluation), count))
            elif better < len(node_capacity.slot_numa_factors) and node_capacity.crowded_shares:
                nodes[reason.make(Code.TOO_FEW_NICS, pods=better + 1)] += count
    return [
        reason.make(Code.DEGRADED_NODES, nodes=count, reason=degradation)
        for degradation, count in nodes.most_common(reason.MAX_NAMED)
    ]


def list_weak_uplinks(
    inputs: DiagnosisInput, leaf: topology.Domain, min_bandwidth: node_slots.Bandwidth
) -> list[reason.Reason]:
    """Return the domains above a leaf with uplinks that carry less than `min_bandwidth`."""
    weak = []
    for level, ratio in enumerate(inputs.capacity.oversubscription[: len(leaf)]):
        domain = leaf[level:]
        nodes = inputs.capacity.domain_sizes.get(domain, 1)
        carried = bandwidth.compute_uplink_bandwidth(nodes, ratio, links=inputs.capacity.links_per_rail)
        if domain[0] and carried < min_bandwidth:
            weak.append(
                node_limits.describe_uplinks(domain, nodes, ratio, carried, links=inputs.capacity.links_per_rail)
            )
    return weak


def name_leaves(leaves: Iterable[topology.Domain]) -> reason.Some:
    """Return the names of a few leaves and the number of the others."""
    return reason.take_first(map(topology.format_domain, leaves))
