"""Explains why a gang needs more than one leaf, gets less than full bandwidth, or does not fit.

Alternatives, such as fewer leaves, are planned by the planner itself, so that explanations agree with the plan. All
bandwidths are modelled. A gang on one leaf at full bandwidth needs no explanation.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec

from railwright.fabric import text, topology
from railwright.fabric.placement import bandwidth, decisions
from railwright.fabric.placement.explain import node_explainer
from railwright.fabric.placement.gangs import planner
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.state import cluster_state, pod_usage
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode

_MAX_SEARCHED = 200  # nodes, for pods that use their missing devices; each takes some microseconds


class Diagnosis(msgspec.Struct, frozen=True):
    """Why a gang needs more than one leaf, gets less than full bandwidth, or does not fit."""

    fits: bool = True  # False: too few nodes have a free slot
    never_fits: bool = False  # the cluster has too few slots even if no other pod ran
    min_leaves: int = 0  # fewest leaves for the gang, its placed peers included, at any bandwidth
    why: tuple[reason.Reason, ...] = ()  # most important first; () if the plan is optimal


def explain_plan(decision: decisions.Decision, cluster: cluster_state.ClusterState) -> Diagnosis:
    """Explain a plan for which all nodes were candidates. Without domains, explain only why too few nodes fit."""
    plan = decision.plan
    if not decision.has_domains:
        capacity = planner.build_capacity(decision.planning_view, on_all_leaves=True)
        decision = msgspec.structs.replace(decision, capacity=capacity)
        if _count_free_slots(decision) >= decision.gang.unplaced:
            return Diagnosis()
    peer_leaves = {decision.planning_view.get_leaf(peer.node) for peer in decision.gang.placed_workers}
    min_leaves = 0
    if decision.has_domains:
        min_leaves = planner.count_min_leaves(decision.gang.unplaced, decision.capacity, peer_leaves)
    leaves = {*plan.leaves, *decision.peers_by_leaf} - {topology.NO_DOMAIN}
    if not plan.is_complete:
        # with prior rights of other gangs, the capacity lacks the nodes that are kept for them
        is_known = not decision.begun and not node_explainer.list_uncounted_resources(
            decision.gang.planning_request, cluster
        )
        # small pods may share what a large one needs: only the largest count, and no segments, which have both
        is_known = is_known and not (decision.gang.is_mixed and decision.capacity.segment > 1)
        never_fits = is_known and _count_slots_without_others(decision) < _count_gang_slots(decision)
        shortage = _explain_shortage(decision, cluster, never_fits=never_fits)
        return Diagnosis(False, never_fits, min_leaves, (*shortage, *_explain_reserved_nodes(decision)))
    if len(leaves) <= 1 and plan.bandwidth >= bandwidth.FULL:
        return Diagnosis(min_leaves=min_leaves)
    if decision.planning_view.index.kind.is_single_pod:
        message = (
            f"the node has {plan.bandwidth:.2f} of full bandwidth (modelled): a single-pod job fills partly used nodes "
            "first, and none of the fullest nodes that fit has more bandwidth"
        )
        return Diagnosis(min_leaves=min_leaves, why=(reason.Reason(PlacementCode.NODES_FILLED, message),))
    reasons = (_explain_leaf_count, _explain_bandwidth, _explain_reserved_nodes)
    return Diagnosis(min_leaves=min_leaves, why=tuple(cause for explain in reasons for cause in explain(decision)))


def _explain_reserved_nodes(decision: decisions.Decision) -> Iterable[reason.Reason]:
    if decision.begun:
        gangs = text.join_first(decision.begun, node_explainer.MAX_NAMED)
        yield reason.Reason(PlacementCode.EARLIER_GANGS, f"nodes are left free for partly placed gangs: {gangs}")


# --- why not fewer leaves -----------------------------------------------------------------------------------


def _explain_leaf_count(decision: decisions.Decision) -> Iterable[reason.Reason]:
    """Yield the reason why the gang does not fit on one leaf less, even on the largest leaves."""
    plan, unplaced, peers_by_leaf = decision.plan, decision.gang.unplaced, decision.peers_by_leaf
    slots_by_leaf = _count_slots_by_leaf(decision, 0.0)
    fewer = sorted(slots_by_leaf, key=lambda leaf: (-slots_by_leaf[leaf], leaf))[: max(0, len(plan.leaves) - 1)]
    if not fewer:
        return
    nodes = {leaf: decision.capacity.nodes[leaf] for leaf in fewer}
    alternative = planner.plan_gang(unplaced, msgspec.structs.replace(decision.capacity, nodes=nodes))
    names, leaves = node_explainer.format_leaves(fewer), text.format_count(len(fewer), "leaf", "has")
    peer_leaves = [leaf for leaf in peers_by_leaf if leaf]
    if not alternative.is_complete:
        slots = text.format_count(sum(slots_by_leaf[leaf] for leaf in fewer), "slot")
        if len(fewer) == 1:
            room = f"the largest leaf, {names}, has {slots}"
        else:
            counts = node_explainer.format_counts_by_leaf((leaf, slots_by_leaf[leaf]) for leaf in fewer)
            room = f"the {len(fewer)} largest leaves have {slots} ({counts})"
        remain = text.format_count(unplaced, "pod", "remains")
        message = f"{remain}; {room}; {text.format_count(len(plan.leaves), 'leaf')} are needed"
    elif alternative.bandwidth < plan.bandwidth - node_explainer.CLOSE:
        value = alternative.bandwidth
        weak = _list_weak_uplinks(decision, fewer, value + node_explainer.CLOSE) if len(fewer) > 1 else ()
        causes = _join_first([*weak, *_list_degradations(decision, fewer, value)])
        share = f"{value:.2f} of full bandwidth (modelled)"
        message = f"{leaves} enough slots ({names}), but at {share}{causes and f': {causes}'}"
    elif not set(peer_leaves) <= set(fewer):
        counts = node_explainer.format_counts_by_leaf((leaf, peers_by_leaf[leaf]) for leaf in peer_leaves)
        message = (
            f"{leaves} enough slots ({names}), but other pods of the gang are placed elsewhere (pods by leaf: "
            f"{counts}), and these leaves are filled first"
        )
    elif plan.shape is not None:
        message = (
            f"{leaves} enough slots ({names}), but not on nodes of {plan.node_type} alone; a gang uses one node type"
        )
    else:
        return
    yield reason.Reason(PlacementCode.LEAVES_MINIMUM, message)


# --- why not more bandwidth ---------------------------------------------------------------------------------


def _explain_bandwidth(decision: decisions.Decision) -> Iterable[reason.Reason]:
    """Yield the reasons why nodes or uplinks allow no more bandwidth; nothing at full bandwidth."""
    plan, remaining = decision.plan, decision.gang.unplaced
    if plan.bandwidth >= bandwidth.FULL:
        return
    if not any(leaf != topology.NO_DOMAIN for leaf in plan.leaves):
        pods = text.format_count(remaining, "pod")
        yield reason.Reason(
            PlacementCode.UNLABELLED_NODES,
            f"only nodes without a topology label have slots for the {pods} still to be placed",
            fix="label these nodes",
        )
        return
    at_most = f"the gang gets {plan.bandwidth:.2f} of full bandwidth (modelled)"
    better = _count_slots_by_leaf(decision, plan.bandwidth + node_explainer.CLOSE)
    if sum(better.values()) >= remaining:
        weak = _list_weak_uplinks(decision, plan.leaves, plan.bandwidth + 2 * node_explainer.CLOSE)
        if weak:
            yield reason.Reason(PlacementCode.UPLINKS_LIMIT, f"{at_most}: {_join_first(weak)}")
        return
    causes = _join_first(_list_degradations(decision, decision.capacity.nodes, plan.bandwidth))
    few = f"faster nodes have slots for {sum(better.values())} of the {text.format_count(remaining, 'pod')}"
    message = f"{at_most}: {few}{f'; {causes}' if causes else ''}"
    yield reason.Reason(PlacementCode.FASTER_NODES_TOO_FEW, message)


# --- why the gang does not fit ------------------------------------------------------------------------------


def _explain_shortage(
    decision: decisions.Decision, cluster: cluster_state.ClusterState, *, never_fits: bool
) -> Iterable[reason.Reason]:
    """Yield the reasons for too few slots: the resources that nodes lack, and the pods that use them on a few nodes."""
    totals: Counter[node_evaluation.NodeClass] = Counter()
    for class_counts in decision.capacity.nodes.values():
        totals.update(class_counts)
    if never_fits:
        needed, too_small = _count_gang_slots(decision), _format_causes(totals, _find_permanent_cause)
        yield reason.Reason(
            PlacementCode.CAPACITY_NEVER,
            f"the {'pod' if needed == 1 else 'gang'} never fits{f' ({too_small})' if too_small else ''}: it needs "
            f"{text.format_count(needed, 'slot')}, and without any other pod the eligible nodes have "
            f"{_count_slots_without_others(decision)}",
        )
        return  # what other pods use does not matter
    kind = decision.planning_view.index.kind
    rails = [*itertools.chain.from_iterable(need.rails for need in kind.needs), *kind.uncounted_rails]
    shown = ", ".join(rails) if len(rails) <= node_explainer.MAX_NAMED else f"{rails[0]}..{rails[-1]}"
    unplaced = decision.gang.unplaced
    each = "" if unplaced == 1 else "each "
    yield reason.Reason(
        PlacementCode.CAPACITY_INSUFFICIENT,
        f"{text.format_count(unplaced, 'pod', 'remains')}{f', {each}with {shown}' if shown else ''}; the cluster has "
        f"slots for {_count_free_slots(decision)}",
    )
    if blocked := _format_causes(totals, _find_present_cause):
        yield reason.Reason(PlacementCode.NODES_BLOCKED, blocked)
    if devices_in_use := tuple(_explain_devices_in_use(decision, cluster)):
        yield reason.Reason(PlacementCode.DEVICE_SHORTAGE, "; ".join(devices_in_use))


def _format_causes(
    totals: Mapping[node_evaluation.NodeClass, int],
    find_cause: Callable[[node_evaluation.NodeClass], reason.Reason | None],
) -> str:
    """Return, as text, the causes that most nodes have, each with its number of nodes."""
    counts: Counter[reason.Reason] = Counter()
    for node_class, nodes in totals.items():
        if nodes and (cause := find_cause(node_class)):
            counts[cause] += nodes
    most = counts.most_common(node_explainer.MAX_NAMED)
    return "; ".join([f"{text.format_count(nodes, 'node')}: {cause.text}" for cause, nodes in most])


def _find_present_cause(node_class: node_evaluation.NodeClass) -> reason.Reason | None:
    """Return why nodes of this class have no slot, or fewer than without other pods; None if they have all."""
    if not node_class.slot_numa_factors:
        return node_explainer.find_blocking_reason(node_class)
    resource = _find_limiting_resource(node_class)
    return node_explainer.describe_shortage(node_class, resource) if resource else None


def _find_limiting_resource(node_class: node_evaluation.NodeClass) -> str | None:
    """Return the resource that limits the slots of a node of this class because other pods use it.

    Without a slot, it is the first resource with less free than the pod requests. None if other pods cost no slot.
    """
    if short := node_explainer.list_short_resources(node_class):
        return short[0]
    slots = len(node_class.slot_numa_factors)
    if slots >= _count_slots_of_empty_node(node_class):
        return None
    return next((name for name, row in node_class.usage.items() if row.free // row.requested == slots), None)


def _find_permanent_cause(node_class: node_evaluation.NodeClass) -> reason.Reason | None:
    """Return why nodes of this class would have no slot even without other pods; None if they would have one."""
    if _count_slots_of_empty_node(node_class):
        return None
    too_few = [name for name, row in node_class.usage.items() if row.allocatable < row.requested]
    if node_class.facts.eligible and too_few:
        return node_explainer.describe_shortage(node_class, too_few[0])
    if node_class.facts.eligible and node_class.facts.broken:
        return node_class.facts.broken[0].describe()
    return node_explainer.find_blocking_reason(node_class)


def _count_gang_slots(decision: decisions.Decision) -> int:
    """Return how many slots on eligible nodes the gang needs at least. Its pods on ineligible nodes need none."""
    used: dict[str, Counter[str]] = {}  # by the gang's pods on each node; several small ones may share a slot
    for peer in decision.gang.placed_workers:
        used.setdefault(peer.node, Counter()).update(peer.requests)
    slots = 0
    for node_class, amounts in zip(decision.planning_view.find_classes(list(used)), used.values(), strict=True):
        if node_class is not None and (most := _count_slots_of_empty_node(node_class)):
            left = [(row.allocatable - amounts[name]) // row.requested for name, row in node_class.usage.items()]
            slots += most - max(0, min(left, default=most))
    return decision.gang.largest + slots


def _count_slots_without_others(decision: decisions.Decision) -> int:
    """Return the number of slots that the eligible nodes would have without other pods. CPU and memory do not count."""
    slots = {node_class: _count_slots_of_empty_node(node_class) for node_class in decision.capacity.classes}
    segment = decision.capacity.segment
    whole = decision.gang.unplaced + len(decision.gang.placed_workers)
    empty = msgspec.structs.replace(decision.capacity, peers={}, rest=whole % segment, rest_leaf=None)
    return sum(empty.sum_slots_by_leaf(slots).values())


def _count_slots_of_empty_node(node_class: node_evaluation.NodeClass) -> int:
    if not node_class.facts.eligible or node_class.facts.broken:
        return 0
    by_device = (row.allocatable // row.requested for row in node_class.usage.values())
    return min(by_device, default=node_evaluation.MAX_SLOTS_PER_NODE)


def _explain_devices_in_use(decision: decisions.Decision, cluster: cluster_state.ClusterState) -> Iterable[str]:
    """Yield which pods use the devices that limit the slots of a node; for a few nodes, full ones first."""
    view, nodes = decision.planning_view, list(cluster.nodes)
    find_lacking = functools.cache(_find_limiting_resource)
    peers = {peer.uid for peer in decision.gang.placed_workers}
    rows = [
        (node, node_class, resource)
        for node, node_class in zip(nodes, view.find_classes(nodes), strict=True)
        if node_class and node_class.facts.eligible and (resource := find_lacking(node_class))
    ]
    rows.sort(key=lambda row: len(row[1].slot_numa_factors) > 0)

    def list_users(node: str, node_class: node_evaluation.NodeClass, resource: str) -> list[str]:
        ignored = peers if node_class.slot_numa_factors else ()  # the gang itself uses its other slots
        holders = pod_usage.list_holders(node, cluster, except_uid=view.request.uid)
        return [pod.key for pod in holders if pod.requests.get(resource, 0) > 0 and pod.uid not in ignored]

    messages = (
        f"{node_explainer.get_label(node_class, resource)} on {node} is used by {_join_first(keys)}"
        for node, node_class, resource in rows[:_MAX_SEARCHED]
        if (keys := list_users(node, node_class, resource))
    )
    return itertools.islice(messages, node_explainer.MAX_NAMED)


# --- numbers ------------------------------------------------------------------------------------------------


def _count_free_slots(decision: decisions.Decision) -> int:
    return sum(decision.capacity.count_slots().values())


def _count_slots_by_leaf(
    decision: decisions.Decision, min_bandwidth: node_evaluation.Bandwidth
) -> dict[topology.Domain, int]:
    """Return leaf -> number of slots with at least this bandwidth. Nodes without a label of a leaf are left out."""
    slots_by_leaf = decision.capacity.count_slots(min_bandwidth)
    slots_by_leaf.pop(topology.NO_DOMAIN, None)
    return slots_by_leaf


def _list_degradations(
    decision: decisions.Decision, leaves: Iterable[topology.Domain], min_bandwidth: node_evaluation.Bandwidth
) -> list[str]:
    """Return as texts why nodes of these leaves have no more than `min_bandwidth`, each with the number of nodes."""
    nodes: Counter[str] = Counter()
    for leaf in leaves:
        for node_class, count in decision.capacity.nodes[leaf].items():
            better = node_class.count_slots(min_bandwidth + 2 * node_explainer.CLOSE)
            if node_class.slot_numa_factors and not better:
                degradations = node_explainer.list_degradations(node_class)
                nodes.update(dict.fromkeys([degradation.text for degradation in degradations], count))
            elif better < len(node_class.slot_numa_factors) and node_class.shares[-1] != node_class.shares[1]:
                nodes[f"too few NICs for {text.format_count(better + 1, 'pod')} of the gang"] += count
    most = nodes.most_common(node_explainer.MAX_NAMED)
    return [f"{degradation} on {text.format_count(count, 'node')}" for degradation, count in most]


def _list_weak_uplinks(
    decision: decisions.Decision, leaves: Iterable[topology.Domain], min_bandwidth: node_evaluation.Bandwidth
) -> list[str]:
    """Return as texts which of the leaves, and of the domains above, have uplinks that carry less than this."""
    uplinks = decision.capacity.uplinks
    return [
        node_explainer.describe_uplinks(uplinks, leaf[level:], level).text
        for leaf in leaves
        for level in range(len(leaf))
        if uplinks.compute_bandwidth(leaf[level:], level) < min_bandwidth
    ]


def _join_first(causes: Iterable[str]) -> str:
    return text.join_first(causes, node_explainer.MAX_NAMED)
