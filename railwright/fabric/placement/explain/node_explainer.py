"""Explains the score of one node: its terms, missing resources, the pods that use them, causes of low bandwidth."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from railwright.fabric import resources, text, topology
from railwright.fabric.claims import inventory
from railwright.fabric.placement import bandwidth, decisions
from railwright.fabric.placement.explain import node_explanation
from railwright.fabric.placement.nodes import node_evaluation, score_terms
from railwright.fabric.placement.state import cluster_state, pod_usage
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode

# --- what limits a node ---------------------------------------------------------------------------------------

CLOSE = 1e-6  # bandwidth (0..1); smaller differences are rounding
_INELIGIBLE = reason.Reason(
    PlacementCode.NODE_INELIGIBLE, "cordoned, not Ready, tainted, or not matched by the pod's node selector or affinity"
)
_OTHER_RESOURCES = reason.Reason(PlacementCode.OTHER_RESOURCES, "too little CPU or memory, or too many pods")


def find_blocking_reason(node_class: node_evaluation.NodeClass) -> reason.Reason:
    """Return why nodes of this class have no slot."""
    if not node_class.facts.eligible:
        return _INELIGIBLE
    if lacking := list_short_resources(node_class):
        return describe_shortage(node_class, lacking[0])
    if node_class.facts.broken:
        return node_class.facts.broken[0].describe()
    return _OTHER_RESOURCES


def list_short_resources(node_class: node_evaluation.NodeClass) -> list[str]:
    """Return the accelerators and rail resources with fewer free devices on the node than one pod requests."""
    return [name for name, devices in node_class.usage.items() if devices.free < devices.requested]


def describe_shortage(node_class: node_evaluation.NodeClass, resource: str) -> reason.Reason:
    """Return as a reason how much of a resource is free and, if that is too little for a pod, how much it needs."""
    devices = node_class.usage[resource]
    message = _format_shortage(get_label(node_class, resource), devices, devices.requested)
    return reason.Reason(PlacementCode.DEVICE_SHORTAGE, message)


def _format_shortage(label: str, devices: node_evaluation.Devices, needed: int) -> str:
    free, allocatable = max(0, devices.free) // resources.UNIT, devices.allocatable // resources.UNIT
    too_few = f", {needed // resources.UNIT} needed" if devices.free < needed else ""
    return f"{label} has {free} of {allocatable} free{too_few}"


def get_label(node_class: node_evaluation.NodeClass, resource: str) -> str:
    """Return the name of the rails that use a resource, or the resource itself if no needed rail does."""
    return next((pool.need.display_name for pool in node_class.pools if pool.need.resource == resource), resource)


def list_degradations(node_class: node_evaluation.NodeClass, number: int = 1) -> tuple[reason.Reason, ...]:
    """Return why the `number`-th pod of the gang on such a node has less than full bandwidth; () if it has full."""
    degradations = list[reason.Reason]()
    sharing = list[node_evaluation.Pool]()
    if node_class.get_numa_factor(number) < 1:
        degradations.append(reason.Reason(PlacementCode.NUMA_SPLIT, "NUMA splits"))
    shares = iter(node_class.get_shares(number))
    rail_count = sum(len(pool.need.rails) for pool in node_class.pools)
    for pool in node_class.pools:
        unshared = sum(pool.rates) / rail_count
        share = sum(itertools.islice(shares, len(pool.need.rails)))
        if pool.devices.allocatable <= 0:
            degradations.append(reason.Reason(PlacementCode.RAIL_BROKEN, f"{pool.need.display_name} dead or absent"))
        else:
            degradations.extend(rail.describe() for rail in pool.broken)
            if not pool.is_sufficient:
                degradations.append(reason.Reason(PlacementCode.DEVICE_SHORTAGE, f"{pool.need.display_name} not free"))
            elif not pool.is_healthy:
                degradations.append(reason.Reason(PlacementCode.RAIL_BROKEN, f"{pool.need.display_name} degraded"))
        if pool.is_sufficient and share < unshared - CLOSE:
            sharing.append(pool)
    if sharing:
        message = (
            "NICs shared with other pods"
            if any(pool.devices.used for pool in sharing)
            else "pods of the gang share NICs"
        )
        degradations.append(reason.Reason(PlacementCode.NICS_SHARED, message))
    return tuple(degradations)


def describe_uplinks(
    uplinks: bandwidth.Uplinks, domain: topology.Domain, level: int, crossings: int = 1
) -> reason.Reason:
    """Return as a reason the bandwidth, 0..1, of each of `crossings` ring edges over the uplinks of a domain."""
    size = (
        f"{text.format_count(uplinks.domain_sizes.get(domain, 1), 'node')}, {uplinks.get_oversubscription(level):g}:1"
    )
    if uplinks.links_per_rail > 1:
        size += ", including the uplinks of rails that the gang does not use"
    carried = f"{uplinks.compute_bandwidth(domain, level, crossings):.2f}"
    share = f" for each of {crossings} crossings" if crossings > 1 else ""
    message = f"the uplinks of {topology.format_domain(domain)} ({size}) carry {carried}{share}"
    return reason.Reason(PlacementCode.UPLINKS_LIMIT, message)


# --- one node -------------------------------------------------------------------------------------------------

MAX_ROWS = 50  # feasible nodes stored for explanations, and as many infeasible ones
MAX_NAMED = 3  # items of a list in a reason
_MAX_HOLDERS_NAMED = 5  # a node may have a hundred pods that use a shared pool


def format_leaves(leaves: Iterable[topology.Domain]) -> str:
    """Return as text the names of the first leaves, and the number of the others."""
    return text.join_first(map(topology.format_domain, leaves), MAX_NAMED)


def format_counts_by_leaf(counts: Iterable[tuple[topology.Domain, int]]) -> str:
    """Return as text the first leaves, each with its count, and the number of the other leaves."""
    return text.join_first([f"{topology.format_domain(leaf)} {count}" for leaf, count in counts], MAX_NAMED)


def list_uncounted_resources(requests: resources.Amounts, cluster: cluster_state.ClusterState) -> set[str]:
    """Return the requested resources that kube-scheduler counts by a DeviceClass, and that no node reports."""
    classes = cluster.devices.class_sink.known.values()
    names = [(known.spec.extended_resource_name, inventory.name_class(known.metadata.name)) for known in classes]
    requested = requests.keys() & set(itertools.chain.from_iterable(names))
    return {name for name in requested if not any(node.allocatable.get(name) for node in cluster.nodes.values())}


_UNKNOWN = reason.Reason(
    PlacementCode.NODE_UNKNOWN, "the extender's cache does not contain this node yet, so its score is 0"
)


def explain_nodes(
    decision: decisions.Decision,
    cluster: cluster_state.ClusterState,
    refusals: Mapping[str, reason.Reason],
    first: str = "",
) -> list[node_explanation.NodeExplanation]:
    """Return the explanations of up to MAX_ROWS candidate nodes and up to MAX_ROWS refused ones.

    `first` is chosen first, then nodes of the target leaf and of the planned leaves. Candidates that are cordoned,
    tainted or not selected are chosen last: they may be thousands. The best node comes first.
    """
    view = decision.view
    offered, leaves = view.request.offered, view.index.nodes_by_leaf
    planned_leaves = dict.fromkeys((decision.target_leaf, *decision.plan.leaves))
    names = itertools.chain([first], *[leaves.get(leaf, ()) for leaf in planned_leaves if leaf], view.request.nodes)
    candidates = list(dict.fromkeys(filter(offered.__contains__, names)))
    is_excluded = {
        name: node_class is not None and not node_class.facts.eligible and name != first
        for name, node_class in zip(candidates, view.find_classes(candidates), strict=True)
    }
    chosen = dict.fromkeys(sorted(candidates, key=is_excluded.__getitem__)[:MAX_ROWS])
    chosen |= dict.fromkeys(itertools.islice(refusals, MAX_ROWS))
    scores = decision.score(list(chosen))
    uncounted = list_uncounted_resources(view.request.requests, cluster)

    def explain_node(name: str) -> node_explanation.NodeExplanation:
        node_class, score, refusal = view.get_class(name), round(scores[name], 1), refusals.get(name)
        if node_class is None:
            return node_explanation.NodeExplanation(node=name, score=score, fits=False, reasons=(_UNKNOWN,))
        facts, leaf, lacking = node_class.facts, view.get_leaf(name), list_short_resources(node_class)
        # only kube-scheduler counts these devices, so whether they or CPU and memory are short is unknown
        is_known = uncounted <= node_class.usage.keys()
        obstacles = [] if facts.eligible else [_INELIGIBLE]
        if facts.eligible and not facts.fits_by_other_resources and is_known:
            obstacles.append(_OTHER_RESOURCES)
        holders = pod_usage.list_holders(name, cluster, except_uid=view.request.uid)
        pools = {pool.need.resource: pool for pool in node_class.pools}
        shortages = [_describe_pool_shortage(pool, holders) for pool in pools.values() if not pool.is_sufficient]
        shortages += [describe_shortage(node_class, resource) for resource in lacking if resource not in pools]
        slower = [cause for cause in list_degradations(node_class) if cause.code != PlacementCode.DEVICE_SHORTAGE]
        return node_explanation.NodeExplanation(
            node=name,
            score=score,
            leaf=topology.format_domain(leaf),
            rejection=refusal,
            # what is not requested is no limit, and what is not counted here is counted by kube-scheduler
            fits=not (refusal or facts.broken or obstacles) and uncounted.issuperset(lacking),
            reasons=[cause for cause in (*obstacles, *shortages, *slower) if cause != refusal],
            terms={} if refusal or facts.broken else _explain_terms(node_class, leaf, decision),
        )

    order = sorted(chosen, key=lambda name: (name in refusals, is_excluded.get(name, False), -scores[name], name))
    return [explain_node(name) for name in order]


def _describe_pool_shortage(pool: node_evaluation.Pool, holders: Sequence[pod_usage.Holder]) -> reason.Reason:
    """Return as a reason how much of a pool is free, and which pods (namespace/name) use the rest."""
    message = _format_shortage(pool.need.display_name, pool.devices, pool.need.amount)
    users = dict.fromkeys([holder.key for holder in holders if holder.requests.get(pool.need.resource, 0) > 0])
    if users:
        others = " and others" if len(users) > _MAX_HOLDERS_NAMED else ""
        message += f", held by {', '.join(itertools.islice(users, _MAX_HOLDERS_NAMED))}{others}"
    return reason.Reason(PlacementCode.DEVICE_SHORTAGE, message)


def _explain_terms(
    node_class: node_evaluation.NodeClass, leaf: topology.Domain, decision: decisions.Decision
) -> dict[str, node_explanation.Term]:
    """Return each term of a node's score, with its reason."""
    terms = {term.name: (term.score(node_class), term.explain(node_class)) for term in score_terms.TERMS}
    if decision.has_domains:
        tier = decisions.find_tiers([leaf], decision).get(leaf, decisions.ELSEWHERE)
        value, why = decisions.rate_locality(tier, node_class, decision)
        terms = {"locality": (value, why or _describe_tier(value, leaf, decision)), **terms}
    return {name: node_explanation.Term(round(value, 3), message) for name, (value, message) in terms.items()}


def _describe_tier(tier: float, leaf: topology.Domain, decision: decisions.Decision) -> str:
    name, plan, peers = topology.format_domain(leaf), decision.plan, decision.peers_by_leaf.get(leaf, 0)
    pods = text.format_count(decision.gang.unplaced, "pod")
    room = f"slots for {min(plan.slots_by_leaf.get(leaf, 0), decision.gang.unplaced)} of {pods} to place"
    no_plan = "" if plan.is_complete else "the gang has no plan, because some pods have no room"
    if tier == decisions.TARGET:
        placed = text.format_count(peers, "other pod") if peers else "no other pod"
        is_alone = decision.gang.size == 1
        return (
            f"{name} is the tightest leaf that fits the pod" if is_alone else f"{name} has {placed} of the gang, {room}"
        )
    if tier == decisions.PLANNED:
        number = f"{name} is leaf {plan.leaves.index(leaf) + 1} of {len(plan.leaves)} in the gang's plan"
        return f"{name} has {room}; {no_plan}" if no_plan else number
    if tier == decisions.SAME_PARENT:
        target = topology.format_domain(decision.target_leaf or topology.NO_DOMAIN)
        return f"{name} has the same parent as the target leaf {target}"
    return no_plan or f"{name} is not in the gang's plan"
