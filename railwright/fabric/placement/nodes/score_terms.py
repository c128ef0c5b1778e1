"""The score terms of a node: its free rails, the alignment of rails and GPUs, how full it is; and their weighted sum.

TERMS lists them: each has a function for the score, and one for the explanation. Locality depends on the
gang's plan too, so it is not among them (`placement.decisions`). `convert_to_priorities` maps scores to the integers of
kube-scheduler.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from railwright.fabric import resources, text
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.nodes import node_evaluation


class ScoreTerm(NamedTuple):
    """One aspect of a node's score."""

    name: str  # in explanations
    weight: float  # only the ratios matter
    score: Callable[[node_evaluation.NodeClass], float]  # 0..1
    explain: Callable[[node_evaluation.NodeClass], str]  # why the node has this score


def _score_rails(node_class: node_evaluation.NodeClass) -> float:
    """Return the share of the pod's rails that are free on the node. A degraded rail counts half.

    A rail is degraded if its allocatable is below its capacity: the device plugin reports unhealthy devices.
    """
    needed = _count_rails(node_class)
    return sum(_list_rail_rates(node_class)) / needed if needed else 1.0


def _explain_rails(node_class: node_evaluation.NodeClass) -> str:
    needed = _count_rails(node_class)
    if not needed:
        return "the pod needs no rails"
    free = sum(1 for rate in _list_rail_rates(node_class) if rate > 0)
    labels = [pool.need.display_name for pool in node_class.pools if pool.is_sufficient and not pool.is_healthy]
    degraded = f", {', '.join(labels)} degraded" if labels else ""
    return f"{free} of {text.format_count(needed, 'rail')} free{degraded}"


def _count_rails(node_class: node_evaluation.NodeClass) -> int:
    return sum(len(pool.need.rails) for pool in node_class.pools)


def _list_rail_rates(node_class: node_evaluation.NodeClass) -> list[float]:
    return [rate for pool in node_class.pools if pool.is_sufficient for rate in pool.rates]


def _score_numa(node_class: node_evaluation.NodeClass) -> float:
    """Return 1 if the pod's GPUs and rails are on the same NUMA nodes, or if the layout is unknown.

    Otherwise return half the share of local rails.
    """
    if not node_class.facts.zones:
        return 1.0
    if not node_class.numa_assignments:
        return 0.0
    rail_devices = node_class.demand.rail_devices
    if not rail_devices:
        return float(node_class.has_unsplit_slot)
    local = node_class.numa_assignments[0].local
    return 1.0 if local >= rail_devices else local / rail_devices / 2


def _explain_numa(node_class: node_evaluation.NodeClass) -> str:
    if not node_class.facts.zones:
        return "NUMA layout unknown"
    if not node_class.numa_assignments:
        return "NUMA nodes have too few free GPUs or rails"
    best = node_class.numa_assignments[0]
    zones = "+".join(map(str, best.zones))
    rail_devices = node_class.demand.rail_devices
    if not rail_devices:
        return f"GPUs {'on NUMA node' if node_class.has_unsplit_slot else 'split over NUMA nodes'} {zones}"
    if best.local >= rail_devices:
        return f"GPUs and rails together on NUMA node {zones}"
    local = f"{best.local} of {text.format_count(rail_devices, 'rail')}"
    return f"{local} on the NUMA node of their GPUs; the pod uses NUMA nodes {zones}"


def _explain_packing(node_class: node_evaluation.NodeClass) -> str:
    if not _list_usage(node_class):
        return "the pod requests no accelerator or rail"
    devices = "accelerators" if node_class.demand.accelerators else "rail devices"
    return f"{_compute_utilization(node_class):.0%} of its {devices} in use with this pod"


def _compute_utilization(node_class: node_evaluation.NodeClass) -> float:
    """Return the mean utilization with the pod, of the requested accelerators, or of rail pools if it requests none.

    Fuller nodes come first, so that idle nodes stay idle. A pool may have a hundred devices on a node of eight
    accelerators, so pools alone would not show how full it is.
    """
    shares = [
        min(1.0, (usage.allocatable - usage.free + usage.requested) / usage.allocatable)
        for usage in _list_usage(node_class)
    ]
    return sum(shares) / len(shares) if shares else 0.0


def _list_usage(node_class: node_evaluation.NodeClass) -> Sequence[node_evaluation.Devices]:
    """Return the amounts on the node of each requested accelerator, or of each rail resource if there is none."""
    accelerators = {name for name, _ in node_class.demand.accelerators}
    usages = [usage for name, usage in node_class.usage.items() if name in accelerators or not accelerators]
    return [usage for usage in usages if usage.allocatable > 0]


LOCALITY_WEIGHT = 60.0
RAILS = ScoreTerm("rails", 20.0, _score_rails, _explain_rails)
NUMA = ScoreTerm("numa", 15.0, _score_numa, _explain_numa)
PACKING = ScoreTerm("packing", 5.0, _compute_utilization, _explain_packing)
TERMS = (RAILS, NUMA, PACKING)

# --- single-pod jobs ----------------------------------------------------------------------------------------
# Such a job fills partly used nodes before it takes idle ones. Order: nodes that hold the pod's GPUs on the fewest NUMA
# nodes; among these, partly used nodes; among these, the fullest; among equally full nodes, the alignment of the pod's
# rails (docs/interface.md 7.6).

_COMPACT, _FULL = 1.0, 0.9  # unsplit GPUs outweigh any difference in utilization
_ALIGNED = 0.5  # weight of rail alignment, in accelerators of utilization


def _score_fill_order(node_class: node_evaluation.NodeClass) -> float:
    """Return the place of a node in the order in which single-pod jobs fill nodes; 1 is first, 0 last."""
    tie = _ALIGNED / max([1, *(usage.allocatable // resources.UNIT for usage in _list_usage(node_class))])
    utilization = (_compute_utilization(node_class) + tie * NUMA.score(node_class)) / (1 + tie)
    return (_COMPACT * node_class.has_unsplit_slot + _FULL * utilization) / (_COMPACT + _FULL)


_HIGHEST = 100.0


def compute_score(node_class: node_evaluation.NodeClass, kind: scheduling_request.SchedulingRequest) -> float:
    """Return the score without locality, 0..100. For a single-pod job the fill order replaces NUMA and PACKING."""
    if node_class.facts.broken:
        return 0.0
    replaced = (NUMA, PACKING) if kind.is_single_pod else ()
    total = sum(term.weight * term.score(node_class) for term in TERMS if term not in replaced)
    total += sum(term.weight for term in replaced) * _score_fill_order(node_class)
    return (_HIGHEST - compute_max_locality(kind)) * total / sum([term.weight for term in TERMS])


def compute_max_locality(kind: scheduling_request.SchedulingRequest) -> float:
    """Return the score, 0..100, that the best locality adds; 0 if the policy has no domains."""
    others = sum([term.weight for term in TERMS])
    return _HIGHEST * LOCALITY_WEIGHT / (LOCALITY_WEIGHT + others) if kind.domains else 0.0


# --- kube-scheduler's integers --------------------------------------------------------------------------------

MAX_PRIORITY = 10  # extenderv1.MaxExtenderPriority


def convert_to_priorities(scores: Collection[float]) -> Mapping[float, int]:
    """Return kube-scheduler's integer for each distinct score, of which thousands of nodes have few."""
    best = max(scores, default=0.0)
    if best <= 0:  # the pod did not opt in, or each node has a broken rail or is not in the cache
        return dict.fromkeys(scores, 0)
    steps = {score: math.sqrt((best - score) * MAX_PRIORITY * MAX_PRIORITY / _HIGHEST) for score in set(scores)}
    return {score: max(0, MAX_PRIORITY - int(step + 0.5)) for score, step in steps.items()}
