"""Compares where a gang was placed with what was possible: leaves and modelled bandwidth.

Uses the planner's model: the slowest pod over the rails that all pods have, and the slowest uplink crossing of a ring
in rank order. The input is the node of each pod, the node's evaluation when the pod was placed, and the best plan.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.explain import node_explainer
from railwright.fabric.placement.gangs import planner
from railwright.fabric.placement.nodes import node_evaluation, node_slots
from railwright.fabric.placement.state import object_info
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import Code

COMPACT, SPREAD, DEGRADED = "compact", "spread", "degraded"
_TOLERANCE = 0.005  # bandwidth (0..1); smaller differences would be formatted as equal


class PlacedPod(msgspec.Struct, frozen=True):
    """One placed pod of the gang."""

    pod: str  # its name
    node: str
    leaf: topology.Domain
    evaluation: node_evaluation.NodeEvaluation | None  # of the node just before the pod was placed; None if unknown


class PlannedPlacement(msgspec.Struct, frozen=True):
    """The best plan for the whole gang at the time it was planned."""

    leaves: tuple[topology.Domain, ...]  # also those of the peers placed then
    bandwidth: node_slots.Bandwidth
    upper_bound: node_slots.Bandwidth
    is_exact: bool
    members: int  # unplaced pods when the plan was made

    @classmethod
    def build(cls, plan: planner.Plan, members: int, peer_leaves: Iterable[topology.Domain] = ()) -> "PlannedPlacement":
        """Return the placement by a plan for the unplaced members, beside the leaves of the placed ones."""
        leaves = tuple(dict.fromkeys((*peer_leaves, *plan.leaves)))
        return cls(leaves, plan.bandwidth, plan.upper_bound, plan.is_exact, members)


class PlacementResult(msgspec.Struct, frozen=True):
    """The placement of a gang."""

    members: int
    leaves: Mapping[topology.Domain, int]  # leaf -> number of pods, in rank order
    bandwidth: node_slots.Bandwidth  # modelled
    causes: tuple[reason.Reason, ...]  # reasons for less than full bandwidth
    outside_plan: tuple[str, ...]  # pods on leaves outside the plan, as "pod on node (leaf)"


def select_workers(members: Sequence[object_info.PodInfo], devices: AbstractSet[str]) -> Sequence[object_info.PodInfo]:
    """Return the members that request any of these devices, by rank; all members if none does."""
    workers = [pod for pod in members if not devices.isdisjoint(pod.requests)] or members
    return sorted(workers, key=lambda pod: pod.rank)


def assess(pods: Sequence[PlacedPod], planned: PlannedPlacement, uplinks: bandwidth.Uplinks) -> PlacementResult:
    """Assess the placement of pods given in rank order."""
    slowest_pod, degradations = _find_slowest_pods([pod for pod in pods if pod.evaluation is not None])
    slowest_crossing, crossings = _find_slowest_crossing([pod.leaf for pod in pods], uplinks)
    value = min(slowest_pod, slowest_crossing)
    causes = [
        *(degradations if slowest_pod <= value + _TOLERANCE else ()),
        *(crossings if slowest_crossing <= value + _TOLERANCE else ()),
    ]
    return PlacementResult(
        members=len(pods),
        leaves=Counter(pod.leaf for pod in pods),
        bandwidth=value,
        causes=tuple(causes) if value < rendering.FULL_BANDWIDTH else (),
        outside_plan=tuple(
            f"{pod.pod} on {pod.node} ({topology.format_domain(pod.leaf)})"
            for pod in pods
            if pod.leaf not in planned.leaves
        ),
    )


def classify(result: PlacementResult, planned: PlannedPlacement) -> str:
    """Return SPREAD if more leaves are used than necessary, DEGRADED if only bandwidth is lower, else COMPACT."""
    if len(result.leaves) > len(planned.leaves) > 0:
        return SPREAD
    return DEGRADED if result.bandwidth < planned.bandwidth - _TOLERANCE else COMPACT


def describe(result: PlacementResult, planned: PlannedPlacement) -> reason.Reason:
    """Summarize the placement, compared with the plan."""
    has_bound = not planned.is_exact and planned.upper_bound > planned.bandwidth + _TOLERANCE
    return reason.make(
        Code.PLACEMENT,
        pods=result.members,
        leaves=reason.take_first((topology.format_domain(leaf), count) for leaf, count in result.leaves.items()),
        min_leaves=len(planned.leaves),
        bandwidth=result.bandwidth,
        best=planned.bandwidth,
        bound=planned.upper_bound if has_bound else planned.bandwidth,
        causes=reason.take_first(result.causes),
        outside=reason.take_first(result.outside_plan if classify(result, planned) != COMPACT else ()),
    )


def _find_slowest_pods(pods: Sequence[PlacedPod]) -> tuple[node_slots.Bandwidth, list[reason.Reason]]:
    """Return (bandwidth of the slowest pod, the degradations of the nodes of the slowest pods)."""
    capacities = [pod.evaluation.capacity for pod in pods if pod.evaluation]
    capacities_with_rails = [capacity for capacity in capacities if capacity.shares]
    common = functools.reduce(
        lambda one, other: one & other, (capacity.rails for capacity in capacities_with_rails), -1
    )
    values = [_compute_pod_bandwidth(capacity, common) for capacity in capacities]
    worst = min(values, default=1.0)
    degraded = [
        _describe_member(pod.node, pod.evaluation)
        for pod, value in zip(pods, values, strict=True)
        if pod.evaluation and value <= worst + _TOLERANCE
    ]
    return worst, degraded


def _describe_member(node: str, evaluation: node_evaluation.NodeEvaluation) -> reason.Reason:
    """Return the degradations of a slow pod's node. If it has none, a peer's node lacks a rail."""
    degradations = node_explainer.list_degradations(evaluation)
    if not degradations:
        return reason.make(Code.PEER_RAIL_MISSING, node=node)
    return reason.make(Code.DEGRADED_MEMBER, node=node, causes=reason.take_first(degradations, len(degradations)))


def _compute_pod_bandwidth(capacity: node_slots.NodeCapacity, rails: int) -> node_slots.Bandwidth:
    return capacity.compute_bandwidth(rails) * (capacity.slot_numa_factors[0] if capacity.slot_numa_factors else 1.0)


def _find_slowest_crossing(
    leaves: Sequence[topology.Domain], uplinks: bandwidth.Uplinks
) -> tuple[node_slots.Bandwidth, list[reason.Reason]]:
    """Return (bandwidth of the slowest uplink crossing, reasons for its domains) of a ring in this order."""
    worst = 1.0
    limits: list[reason.Reason] = []
    for level in range(len(uplinks.oversubscription)):
        domains = [leaf[level:] for leaf in leaves]
        leaving: Counter[topology.Domain] = Counter()
        for here, following in zip(domains, [*domains[1:], *domains[:1]], strict=True):
            leaving[here] += here != following
        for domain, edges in leaving.items():
            carried = uplinks.compute_bandwidth(domain, level, edges) if edges else 1.0
            if carried < worst - _TOLERANCE:
                worst, limits = carried, []
            if carried < rendering.FULL_BANDWIDTH and carried <= worst + _TOLERANCE:
                limits.append(node_explainer.describe_uplinks(uplinks, domain, level, edges))
    return worst, limits
