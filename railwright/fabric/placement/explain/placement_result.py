"""Computes the present placement of a gang: its leaves, its modelled bandwidth, and the causes that limit it.

Uses the planner's model. The bandwidth is the lower of two values: the bandwidth of the slowest pod, over the rails
that all pods have, and of the slowest uplink that a ring in rank order crosses. The input is the node of each pod,
evaluated as if the gang's pods were not on it.
"""

import functools
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from railwright.fabric import text, topology
from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.explain import node_explainer
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.state import object_info
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode

_TOLERANCE = 0.005  # bandwidth (0..1); smaller differences would be formatted as equal


class PlacedPod(msgspec.Struct, frozen=True):
    """One placed pod of the gang."""

    node: str
    leaf: topology.Domain
    node_class: node_evaluation.NodeClass | None  # of the node without the gang; None if the node is unknown
    number: int = 1  # of the pod among those of the gang on the node: they share NICs, and the first has the best slot


class PlacementResult(msgspec.Struct, frozen=True):
    """The leaves and the modelled bandwidth of a placed gang."""

    leaves: Mapping[topology.Domain, int]  # leaf -> number of pods, in rank order
    bandwidth: node_evaluation.Bandwidth  # modelled
    causes: tuple[reason.Reason, ...]  # reasons for less than full bandwidth


def select_workers(members: Sequence[object_info.PodInfo], devices: AbstractSet[str]) -> Sequence[object_info.PodInfo]:
    """Return the members that request any of these devices, by rank; all members if none does."""
    workers = [pod for pod in members if not devices.isdisjoint(pod.requests)] or members
    return sorted(workers, key=lambda pod: pod.rank)


def compute_placement(pods: Sequence[PlacedPod], uplinks: bandwidth.Uplinks) -> PlacementResult:
    """Return the leaves and the modelled bandwidth of a gang's placed pods, given in rank order."""
    slowest_pod, degradations = _find_slowest_pods([pod for pod in pods if pod.node_class is not None])
    slowest_crossing, crossings = _find_slowest_crossing([pod.leaf for pod in pods], uplinks)
    value = min(slowest_pod, slowest_crossing)
    causes = [
        *(degradations if slowest_pod <= value + _TOLERANCE else ()),
        *(crossings if slowest_crossing <= value + _TOLERANCE else ()),
    ]
    return PlacementResult(
        leaves=Counter(pod.leaf for pod in pods),
        bandwidth=value,
        causes=tuple(causes) if value < bandwidth.FULL else (),
    )


def _find_slowest_pods(pods: Sequence[PlacedPod]) -> tuple[node_evaluation.Bandwidth, list[reason.Reason]]:
    """Return (bandwidth of the slowest pod, the degradations of the nodes of the slowest pods)."""
    known = [(pod.node_class, pod.number) for pod in pods if pod.node_class]
    common = functools.reduce(operator.and_, [node_class.rails for node_class, _ in known if node_class.pools], -1)
    values = [
        _sum_shares(node_class.get_shares(number), common) * node_class.get_numa_factor(number)
        for node_class, number in known
    ]
    worst = min(values, default=1.0)
    causes, others = list[reason.Reason](), list[node_evaluation.NodeClass]()
    for pod, value in zip(pods, values, strict=True):
        if pod.node_class and value <= worst + _TOLERANCE:
            degradations = node_explainer.list_degradations(pod.node_class, pod.number)
            if degradations:
                message = f"{', '.join([cause.text for cause in degradations])} on {pod.node}"
                causes.append(reason.Reason(degradations[0].code, message))
            else:
                others.append(pod.node_class)
    if others:  # one reason for all, because those with a cause of their own are more useful
        causes.append(_describe_missing_rails(pods, others, common))
    return worst, causes


def _sum_shares(shares: Sequence[node_evaluation.Bandwidth], rails: int) -> node_evaluation.Bandwidth:
    """Return the bandwidth over the rails of a bit mask, given the share of each needed rail; 1 without rails."""
    return sum([share for bit, share in enumerate(shares) if rails >> bit & 1]) if shares else 1.0


def _describe_missing_rails(
    pods: Sequence[PlacedPod], slowed: Sequence[node_evaluation.NodeClass], common: int
) -> reason.Reason:
    """Return why pods on `slowed` nodes use only the rails `common` (a bit mask): other nodes lack the rest."""
    names = [rail for pool in slowed[0].pools for rail in pool.need.rails]
    lost = functools.reduce(operator.or_, [node_class.rails for node_class in slowed]) & ~common
    lacking = dict.fromkeys(pod.node for pod in pods if pod.node_class and lost & ~pod.node_class.rails)
    rails = ", ".join([name for bit, name in enumerate(names) if lost >> bit & 1])
    nodes = text.join_first(lacking, node_explainer.MAX_NAMED)
    count = text.format_count(len(slowed), "more pod")
    message = f"{count} of the gang cannot use {rails}, missing where other pods of the gang run: {nodes}"
    return reason.Reason(PlacementCode.PEER_RAIL_MISSING, message)


def _find_slowest_crossing(
    leaves: Sequence[topology.Domain], uplinks: bandwidth.Uplinks
) -> tuple[node_evaluation.Bandwidth, list[reason.Reason]]:
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
            if carried < bandwidth.FULL and carried <= worst + _TOLERANCE:
                limits.append(node_explainer.describe_uplinks(uplinks, domain, level, edges))
    return worst, limits
