"""Explains why a plan is no better: why not fewer leaves, why not more bandwidth, why the gang does not fit.

Questions like "what if only these leaves were used" are answered by the planner itself, so that explanations agree with
the plan. All bandwidths are modelled. A gang on one leaf at full bandwidth needs no explanation.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import resources, topology
from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.gangs import planner
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.state import assumed_pods, cluster_state

FULL = 0.995  # bandwidths from here on are called full: they are formatted as 1.00
_CLOSE = 1e-6
_MAX_NAMED = 3  # leaves, causes and nodes listed in one message
_MAX_CANDIDATES = 3  # leaves for which a plan on this leaf alone is tried
_PREFIX = "railwright: "

ListPodsOn = Callable[[str], Iterable[cluster_state.PodInfo | assumed_pods.AssumedPod]]
"""Node -> bound and assumed pods on it."""


class DiagnosisInput(msgspec.Struct, frozen=True):
    """The input of an explanation: a plan and the cluster state it is based on."""

    remaining: int  # slots that the unplaced pods need, each of the size of the largest pod
    plan: planner.Plan
    capacity: planner.GangCapacity
    evaluations: Sequence[node_evaluation.NodeEvaluation]  # by index of class, which is the supply's index of grades
    class_of_node: Mapping[str, int]  # node -> index of its class
    peers_by_leaf: Mapping[topology.Domain, int]  # leaf -> number of placed peers
    list_pods_on: ListPodsOn
    list_offered_leaves: Callable[[], Collection[topology.Domain]]  # leaves with at least one offered node
    is_single_pod: bool = False  # single-pod job: partly used nodes are preferred to bandwidth
    unplaced: int = 0  # unplaced pods, if smaller ones share slots; 0: as many as slots

    @property
    def remaining_text(self) -> str:
        """Return the start of a message: the number of unplaced pods."""
        if self.unplaced <= self.remaining:
            return f"{self.remaining} pods remain"
        return f"{self.unplaced} pods remain, which need as much as {self.remaining} of the largest"


def is_optimal(plan: planner.Plan, peers_by_leaf: Mapping[topology.Domain, int]) -> bool:
    """True if the plan needs no explanation: the whole gang on one leaf, at full bandwidth."""
    return plan.is_complete and len({*plan.leaves, *peers_by_leaf} - {topology.NOWHERE}) <= 1 and plan.bandwidth >= FULL


def still_applies(old: planner.Plan, old_remaining: int, new: planner.Plan, remaining: int) -> bool:
    """True if `new` is the unplaced remainder of `old`, so the old explanation still applies."""
    if remaining > old_remaining or old.is_complete != new.is_complete or old.rails != new.rails:
        return False
    if not new.is_complete:
        return sum(old.slots_by_leaf.values()) - sum(new.slots_by_leaf.values()) == old_remaining - remaining
    return abs(old.bandwidth - new.bandwidth) < _CLOSE and set(new.leaves) <= set(old.leaves)


class Diagnosis(msgspec.Struct, frozen=True):
    """The explanation of a plan."""

    fits: bool = True  # False: the cluster has too few slots for the gang, offered or not
    why: tuple[str, ...] = ()  # most important first; () if the plan is optimal


NO_ISSUES = Diagnosis()


def diagnose(given: DiagnosisInput) -> Diagnosis:
    """Explain a plan."""
    plan = given.plan
    if is_optimal(plan, given.peers_by_leaf):
        return NO_ISSUES
    if not plan.is_complete:
        total_slots = sum(_count_slots_by_leaf(given, 0, 0.0).values())
        return Diagnosis(fits=total_slots >= given.remaining, why=tuple(_explain_shortage(given, total_slots)))
    if given.is_single_pod:
        why = "a single-pod job fills partly used nodes first, and none of the fullest that fit has more"
        return Diagnosis(why=(f"modelled at {plan.bandwidth:.2f} of the bandwidth: {why}",))
    return Diagnosis(why=tuple(_reasons(given)))


def _reasons(given: DiagnosisInput) -> Iterable[str]:
    return itertools.chain(
        _explain_leaves(given),
        _explain_slower_choice(given),
        _explain_bandwidth(given),
        _explain_uncertainty(given.plan),
    )


def format_bandwidth(value: planner.Bandwidth) -> str:
    """Format a modelled bandwidth."""
    return "full bandwidth" if value >= FULL else f"{value:.2f} of the bandwidth"


# --- why not fewer leaves -----------------------------------------------------------------------------------


def _explain_leaves(given: DiagnosisInput) -> Iterable[str]:
    plan, remaining = given.plan, given.remaining
    count = len(plan.leaves)
    if count < 2:
        return
    at = format_bandwidth(plan.bandwidth)
    slots_by_leaf = _count_slots_by_leaf(given, plan.rails, plan.bandwidth)
    largest = sorted(slots_by_leaf, key=lambda leaf: (-slots_by_leaf[leaf], leaf))[: count - 1]
    largest_slots = sum(slots_by_leaf[leaf] for leaf in largest)
    if largest_slots < remaining:
        names = _join_some([f"{topology.name_of(leaf)} {slots_by_leaf[leaf]}" for leaf in largest])
        if count == 2:
            leaf = topology.name_of(largest[0])
            limit = f"the largest leaf at {at}, {leaf}, has {largest_slots} {'slot' if largest_slots == 1 else 'slots'}"
        else:
            limit = f"the {count - 1} largest leaves at {at} have {largest_slots} slots ({names})"
        yield f"{given.remaining_text}; {limit}; {count} leaves is the minimum"
        return
    yield from _explain_fewer_leaves(given, largest)


def _explain_fewer_leaves(given: DiagnosisInput, fewer: Sequence[topology.Domain]) -> Iterable[str]:
    """Explain why fewer leaves with enough slots are not used."""
    plan = given.plan
    fewer_names = _join_some([topology.name_of(leaf) for leaf in fewer])
    weak = [message for leaf in fewer for message in _list_weak_uplinks(given, leaf, plan.bandwidth)]
    shapes = {
        node_capacity.shape
        for node_capacity in _list_capacities(given, fewer)
        if planner.count_slots(node_capacity, plan.rails, plan.bandwidth)
    }
    peer_leaves = [leaf for leaf in given.peers_by_leaf if leaf]
    not_offered = _explain_not_offered(given, fewer)
    if not_offered:
        yield f"fewer leaves ({fewer_names}) have enough slots, but {not_offered}"
    elif weak:
        if plan.min_leaves == len(fewer):
            return  # `_explain_slower_choice` explains it, with the bandwidth of these leaves
        yield f"fewer leaves ({fewer_names}) have enough slots, but {_join_some(weak)}"
    elif peer_leaves and not set(peer_leaves) <= set(fewer):
        names = _join_some([f"{topology.name_of(leaf)} ({given.peers_by_leaf[leaf]})" for leaf in peer_leaves])
        yield (
            f"fewer leaves ({fewer_names}) have enough slots, but other pods of the gang are placed on {names}: these "
            "are filled first"
        )
    elif plan.shape is not None and shapes - {plan.shape}:
        on = f"nodes of type {plan.shape}" if plan.shape else "nodes of unknown type"
        yield f"fewer leaves ({fewer_names}) have enough slots, but not on {on} alone; a gang uses one node type"
    else:
        yield f"fewer leaves ({fewer_names}) have enough slots, but not every choice was tried"


def _explain_not_offered(given: DiagnosisInput, leaves: Iterable[topology.Domain]) -> str:
    """Return a message with the leaves of which the scheduler offers no node, or "" if there are none."""
    offered = given.list_offered_leaves()
    missing = [topology.name_of(leaf) for leaf in leaves if leaf not in offered]
    return f"the scheduler offers no node of {_join_some(missing)}" if missing else ""


def _explain_slower_choice(given: DiagnosisInput) -> Iterable[str]:
    """Explain which fewer leaves have enough slots at a lower bandwidth."""
    plan = given.plan
    if not 0 < plan.min_leaves < len(plan.leaves):
        return
    slots_by_leaf = _count_slots_by_leaf(given, 0, 0.0)
    order = sorted(slots_by_leaf, key=lambda leaf: (-slots_by_leaf[leaf], leaf))
    choices = [order[: plan.min_leaves]]
    if plan.min_leaves == 1:
        choices = [[leaf] for leaf in order[:_MAX_CANDIDATES] if slots_by_leaf[leaf] >= given.remaining]
    rated_choices = [(_plan_on(given, choice).bandwidth, choice) for choice in choices]
    value, chosen = max(rated_choices, key=lambda rated: rated[0])
    names = _join_some([topology.name_of(leaf) for leaf in chosen])
    would = f"{plan.min_leaves} {'leaf has' if plan.min_leaves == 1 else 'leaves have'} enough slots ({names})"
    if value > plan.bandwidth - _CLOSE:
        return
    weak: list[str] = []
    if len(chosen) > 1:
        weak = [message for leaf in chosen for message in _list_weak_uplinks(given, leaf, value + _CLOSE)]
    why = _join_some([*weak, *_count_degradations(given, chosen, value)])
    yield f"{would}, but at {value:.2f} of the bandwidth{': ' + why if why else ''}"


def _plan_on(given: DiagnosisInput, leaves: Sequence[topology.Domain]) -> planner.Plan:
    class_counts = {leaf: given.capacity.class_counts[leaf] for leaf in leaves}
    return planner.solve(given.remaining, msgspec.structs.replace(given.capacity, class_counts=class_counts))


# --- why not more bandwidth ---------------------------------------------------------------------------------


def _explain_bandwidth(given: DiagnosisInput) -> Iterable[str]:
    plan, remaining = given.plan, given.remaining
    if plan.bandwidth >= FULL:
        return
    if not any(leaf != topology.NOWHERE for leaf in plan.leaves):
        yield f"only nodes without a topology label have slots for the {remaining} pods that remain: label these nodes"
        return
    at_most = f"at most {plan.bandwidth:.2f} of the bandwidth"
    better = _count_slots_by_leaf(given, plan.rails, plan.bandwidth + _CLOSE)
    if sum(better.values()) >= remaining:
        weak = [
            message for leaf in plan.leaves for message in _list_weak_uplinks(given, leaf, plan.bandwidth + 2 * _CLOSE)
        ]
        why = _join_some(weak) or _explain_not_offered(given, better)
        yield f"{at_most}: {why or 'not every choice was tried'}"
        return
    causes = _join_some(_count_degradations(given, given.capacity.class_counts, plan.bandwidth))
    message = f"{at_most}: faster nodes have slots for {sum(better.values())} of the {remaining} pods"
    yield message + (f"; {causes}" if causes else "")
    if lost := _list_lost_rails(given):
        yield f"the gang runs without {_join_some(lost)}: too few nodes have {'it' if len(lost) == 1 else 'them'} free"


def _list_lost_rails(given: DiagnosisInput) -> list[str]:
    """Return the needed rails that the plan does not use."""
    rail_names = next((_list_rail_names(evaluation) for evaluation in given.evaluations if evaluation.pools), [])
    shares = next(
        (node_capacity.shares for node_capacity in given.capacity.node_capacities if node_capacity.shares), ()
    )
    return [name for bit, name in enumerate(rail_names[: len(shares)]) if not given.plan.rails >> bit & 1]


def _list_rail_names(evaluation: node_evaluation.NodeEvaluation) -> list[str]:
    return [name for pool in evaluation.pools for name in pool.need.rails]


def _explain_uncertainty(plan: planner.Plan) -> Iterable[str]:
    if not plan.is_exact:
        gap = max(0.0, plan.upper_bound - plan.bandwidth)
        yield (
            f"not every choice was tried: another could be better by at most {gap:.2f} of the bandwidth"
            if gap >= 1 - FULL
            else "not every choice was tried: another could be tighter at the same bandwidth"
        )


# --- why it does not fit ------------------------------------------------------------------------------------


def _explain_shortage(given: DiagnosisInput, total_slots: int) -> Iterable[str]:
    if total_slots >= given.remaining:
        offered = f"{given.remaining_text}; the offered nodes have slots for {sum(given.plan.slots_by_leaf.values())}"
        cause = _explain_not_offered(given, _count_slots_by_leaf(given, 0, 0.0))
        yield f"{offered}; {cause or 'the scheduler does not offer the others'}"
        return
    need = next((_describe_need(evaluation) for evaluation in given.evaluations), "")
    yield f"{given.remaining_text}{need}; the cluster has slots for {total_slots}"
    totals: dict[int, int] = {}
    for class_counts in given.capacity.class_counts.values():
        for node_class, nodes in class_counts.items():
            totals[node_class] = totals.get(node_class, 0) + nodes
    lacking: Counter[str] = Counter()
    for node_class, nodes in totals.items():
        if nodes and not given.capacity.node_capacities[node_class].slot_numa_factors:
            lacking[find_blocking_reason(given.evaluations[node_class])] += nodes
    if lacking:
        yield "; ".join(
            f"{nodes} {'node' if nodes == 1 else 'nodes'}: {cause}" for cause, nodes in lacking.most_common(_MAX_NAMED)
        )
    yield from _list_holders(given)


def _describe_need(evaluation: node_evaluation.NodeEvaluation) -> str:
    names = _list_rail_names(evaluation)
    if not names:
        return ""
    return f", each with {names[0]}..{names[-1]}" if len(names) > _MAX_NAMED else f", each with {', '.join(names)}"


def find_blocking_reason(evaluation: node_evaluation.NodeEvaluation) -> str:
    """Return why nodes of this class have no slot, or "" if they have one."""
    if not evaluation.facts.eligible:
        return "cordoned, not Ready, tainted, or not matched by the pod's node selector or affinity"
    if lacking := list_short_resources(evaluation):
        return format_shortage(evaluation, lacking[0])
    if evaluation.refusal:
        return evaluation.refusal.removeprefix(_PREFIX)
    return "" if evaluation.facts.fits_by_other_resources else "too little CPU or memory, or too many pods"


def list_short_resources(evaluation: node_evaluation.NodeEvaluation) -> list[str]:
    """Return the accelerators and pools of which such a node has too few free for one pod."""
    return [name for name, (free, _, requested) in evaluation.usage.items() if free < requested]


def format_shortage(evaluation: node_evaluation.NodeEvaluation, resource: str) -> str:
    """Format how much of one resource is free and needed."""
    free, allocatable, requested = evaluation.usage[resource]
    left = f"{max(0, free) // resources.UNIT} of {allocatable // resources.UNIT} free"
    return f"{_get_label(evaluation, resource)} has {left}, {requested // resources.UNIT} needed"


def _get_label(evaluation: node_evaluation.NodeEvaluation, resource: str) -> str:
    return next((pool.need.label for pool in evaluation.pools if pool.need.resource == resource), resource)


def _list_holders(given: DiagnosisInput) -> Iterable[str]:
    """Name the pods that use the missing accelerator or rail, for a few nodes."""
    lacking = {
        node_class: names[0]
        for node_class, evaluation in enumerate(given.evaluations)
        if evaluation.facts.eligible
        and not evaluation.capacity.slot_numa_factors
        and (names := list_short_resources(evaluation))
    }
    messages: list[str] = []
    for node, node_class in given.class_of_node.items():
        if node_class not in lacking:
            continue
        resource = lacking[node_class]
        keys = [pod.key for pod in given.list_pods_on(node) if pod.requests.get(resource, 0) > 0]
        if keys:
            messages.append(
                f"{_get_label(given.evaluations[node_class], resource)} on {node} is used by {_join_some(keys)}"
            )
        if len(messages) == _MAX_NAMED:
            break
    if messages:
        yield "; ".join(messages)


# --- words and sums -----------------------------------------------------------------------------------------


def list_degradations(evaluation: node_evaluation.NodeEvaluation) -> tuple[str, ...]:
    """Return what keeps nodes of this class below full bandwidth."""
    degradations = []
    node_capacity = evaluation.capacity
    if node_capacity.slot_numa_factors and node_capacity.slot_numa_factors[0] < 1:
        degradations.append("NUMA splits")
    for pool in evaluation.pools:
        if not pool.is_sufficient:
            degradations.append(f"{pool.need.label} {'not free' if pool.allocatable > 0 else 'dead or absent'}")
        elif not pool.is_healthy:
            degradations.append(f"{pool.need.label} degraded")
    if not degradations and node_capacity.shares and sum(node_capacity.shares) < 1 - _CLOSE:
        degradations.append("NICs shared with other pods")
    return tuple(degradations)


def _count_degradations(
    given: DiagnosisInput, leaves: Iterable[topology.Domain], min_bandwidth: planner.Bandwidth
) -> list[str]:
    """Return the degradations of nodes of these leaves at or below `min_bandwidth`, with the number of nodes."""
    nodes: Counter[str] = Counter()
    for leaf in leaves:
        for node_class, count in given.capacity.class_counts[leaf].items():
            node_capacity = given.capacity.node_capacities[node_class]
            better = planner.count_slots(node_capacity, given.plan.rails, min_bandwidth + 2 * _CLOSE)
            if node_capacity.slot_numa_factors and not better:
                nodes.update(dict.fromkeys(list_degradations(given.evaluations[node_class]), count))
            elif better < len(node_capacity.slot_numa_factors) and node_capacity.crowded_shares:
                nodes[f"too few NICs for {better + 1} pods of the gang"] += count
    return [
        f"{degradation} on {count} {'node' if count == 1 else 'nodes'}"
        for degradation, count in nodes.most_common(_MAX_NAMED)
    ]


def _list_weak_uplinks(given: DiagnosisInput, leaf: topology.Domain, min_bandwidth: planner.Bandwidth) -> list[str]:
    """Return messages for the domains above a leaf with uplinks that carry less than `min_bandwidth`."""
    messages = []
    for level, ratio in enumerate(given.capacity.oversubscription[: len(leaf)]):
        domain = leaf[level:]
        nodes = given.capacity.domain_sizes.get(domain, 1)
        carried = bandwidth.uplink(nodes, ratio, links=given.capacity.links_per_rail)
        if domain[0] and carried < min_bandwidth:
            messages.append(format_uplinks(domain, nodes, ratio, carried, links=given.capacity.links_per_rail))
    return messages


def format_uplinks(  # noqa: PLR0913, PLR0917 - one argument a number of the sentence
    domain: topology.Domain,
    nodes: int,
    ratio: float,
    carried: planner.Bandwidth,
    crossings: int = 1,
    links: float = 1.0,
) -> str:
    """Format what the uplinks of a domain of `nodes` nodes carry for each of its crossings."""
    size = f"{nodes} {'node' if nodes == 1 else 'nodes'}, {ratio:g}:1"
    if links > 1:
        size += ", including the uplinks of rails that the gang does not use"
    each = f" for each of {crossings} crossings" if crossings > 1 else ""
    return f"the uplinks of {topology.name_of(domain)} ({size}) carry {carried:.2f}{each}"


def _count_slots_by_leaf(
    given: DiagnosisInput, rails: int, min_bandwidth: planner.Bandwidth
) -> dict[topology.Domain, int]:
    counts = [
        planner.count_slots(node_capacity, rails, min_bandwidth)
        if rails or min_bandwidth
        else len(node_capacity.slot_numa_factors)
        for node_capacity in given.capacity.node_capacities
    ]
    slots_by_leaf = {}
    for leaf, kinds in given.capacity.class_counts.items():
        slots = 0
        for node_class, nodes in kinds.items():  # hot path: a loop is faster than a generator
            slots += counts[node_class] * nodes
        if slots and leaf:
            slots_by_leaf[leaf] = slots
    return slots_by_leaf


def _list_capacities(given: DiagnosisInput, leaves: Iterable[topology.Domain]) -> Iterable[planner.NodeCapacity]:
    capacity = given.capacity
    return (
        capacity.node_capacities[node_class]
        for leaf in leaves
        for node_class, nodes in capacity.class_counts[leaf].items()
        if nodes
    )


def _join_some(items: Sequence[str]) -> str:
    items = list(dict.fromkeys(items))
    rest = len(items) - _MAX_NAMED
    return ", ".join(items[:_MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")
