"""The score terms of a node: its free rails, the alignment of rails and GPUs, how full it is; and their weighted sum.

A term is a function and a row of TERMS. Each also gives the reason of its value. Locality depends on the gang's plan
too, so it is not among them (`placement.locality`). `KubePriorities` maps scores to kube-scheduler's integers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from railwright.fabric import resources
from railwright.fabric.placement.nodes import node_evaluation, scheduling_signature
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code


class TermScore(NamedTuple):
    """The score of a node by one term."""

    value: float  # 0..1
    reason: reason.Reason


class ScoreTerm(NamedTuple):
    """One aspect of a node's score."""

    name: str  # in explanations
    get_weight: Callable[[model.Placement], float | None]  # by the policy; None: the term does not apply
    score: Callable[[node_evaluation.NodeEvaluation], TermScore]


def _score_rails(evaluation: node_evaluation.NodeEvaluation) -> TermScore:
    """Return the share of the pod's rails that are free on the node. A degraded rail counts half.

    A rail is degraded if its allocatable is below its capacity: the device plugin reports unhealthy devices. So is one
    that reports make placement avoid. One that they exclude counts as not free.
    """
    needed = sum(len(pool.need.rails) for pool in evaluation.pools)
    if not needed:
        return TermScore(1.0, reason.make(Code.NO_RAILS_NEEDED))
    sufficient = [pool for pool in evaluation.pools if pool.is_sufficient]
    rates = [rate for pool in sufficient for rate in pool.rate_rails()]
    value, free = sum(rates), sum(1 for rate in rates if rate > 0)
    degraded = tuple(label for pool in sufficient for label in _list_degraded(pool))
    rails_free = reason.make(Code.RAILS_FREE, free=free, needed=needed, degraded=degraded)
    return TermScore(value / needed, rails_free)


def _list_degraded(pool: node_evaluation.PoolAvailability) -> Sequence[str]:
    """Return the pool's name if its devices are degraded, or its rails that are avoided."""
    if not pool.is_healthy:
        return [pool.need.label]
    return [row.rail for row in pool.reported if not row.is_excluded]


def _score_numa(evaluation: node_evaluation.NodeEvaluation) -> TermScore:
    """Return 1 if the pod's GPUs and rails are on the same NUMA nodes, or if the layout is unknown.

    Otherwise return half the share of local rails.
    """
    if not evaluation.facts.zones:
        return TermScore(1.0, reason.make(Code.NUMA_UNKNOWN))
    if not evaluation.numa_assignments:
        return TermScore(0.0, reason.make(Code.NUMA_DEVICES_BUSY))
    best = evaluation.numa_assignments[0]
    zones = "+".join(str(zone) for zone in best.zones)
    rail_devices = sum(amount for _, amount in evaluation.demand.pools) // resources.UNIT
    if not rail_devices and evaluation.capacity.unsplit_slots > 0:
        return TermScore(1.0, reason.make(Code.NUMA_GPUS_TOGETHER, zones=zones))
    if not rail_devices:
        return TermScore(0.0, reason.make(Code.NUMA_GPUS_SPLIT, zones=zones))
    if evaluation.is_aligned:
        return TermScore(1.0, reason.make(Code.NUMA_ALIGNED, zones=zones))
    partly_local = reason.make(Code.NUMA_PARTLY_LOCAL, local=best.local, needed=rail_devices, zones=zones)
    return TermScore(best.local / rail_devices / 2, partly_local)


def _score_packing(evaluation: node_evaluation.NodeEvaluation) -> TermScore:
    """Return the utilization with the pod, 0..1: fuller nodes come first, so that idle nodes stay idle."""
    if not _list_usage(evaluation):
        return TermScore(0.0, reason.make(Code.NO_DEVICES_REQUESTED))
    devices = "accelerators" if evaluation.demand.accelerators else "rail devices"
    utilization = _compute_utilization(evaluation)
    utilized = reason.make(Code.DEVICES_UTILIZED, share=utilization, devices=devices)
    return TermScore(utilization, utilized)


def _compute_utilization(evaluation: node_evaluation.NodeEvaluation) -> float:
    """Return the mean utilization with the pod, of the requested accelerators, or of rail pools if it requests none.

    A pool may have a hundred devices on a node of eight accelerators, so pools alone would not show how full it is.
    """
    shares = [
        min(1.0, (usage.allocatable - usage.free + usage.requested) / usage.allocatable)
        for usage in _list_usage(evaluation)
    ]
    return sum(shares) / len(shares) if shares else 0.0


def _list_usage(evaluation: node_evaluation.NodeEvaluation) -> Sequence[node_evaluation.ResourceUsage]:
    """Return the usage of each resource that counts for utilization."""
    accelerators = {name for name, _ in evaluation.demand.accelerators}
    usages = [usage for name, usage in evaluation.usage.items() if name in accelerators or not accelerators]
    return [usage for usage in usages if usage.allocatable > 0]


NUMA = ScoreTerm("numa", lambda placement: None if placement.numa == "ignore" else placement.weights.numa, _score_numa)
PACKING = ScoreTerm("packing", lambda placement: placement.weights.packing, _score_packing)
TERMS = (ScoreTerm("rails", lambda placement: placement.weights.rails, _score_rails), NUMA, PACKING)

# --- single-pod jobs ----------------------------------------------------------------------------------------
# Such a job fills partly used nodes before it takes idle ones. Order: nodes that hold the pod's GPUs on the fewest NUMA
# nodes; among these, partly used nodes; among these, the fullest; among equally full nodes, the alignment of the pod's
# rails (docs/interface.md 7.6).

_COMPACT, _FULL = 1.0, 0.9  # unsplit GPUs outweigh any difference in utilization
_ALIGNED = 0.5  # weight of rail alignment, in accelerators of utilization

_REPLACED_TERMS = frozenset({NUMA.name, PACKING.name})  # by the fill order

FillOrder = tuple[float, ...]
"""Sort key of a node; lower comes first."""


def _compute_fill_order(evaluation: node_evaluation.NodeEvaluation) -> FillOrder:
    """Return the sort key of a node; lower comes first."""
    return (
        evaluation.capacity.fill_priority,
        -round(_compute_utilization(evaluation), 6),
        -NUMA.score(evaluation).value,
    )


def _score_fill_order(evaluation: node_evaluation.NodeEvaluation, weights: Mapping[str, float]) -> float:
    """Return the order as a number between 0 and the sum of the weights of `numa` and `packing`. Rails are left out.

    `weights` are those of the enabled terms.
    """
    has_numa_term = NUMA.name in weights
    tie = _ALIGNED / max((usage.allocatable // resources.UNIT for usage in _list_usage(evaluation)), default=1)
    is_unsplit = evaluation.capacity.unsplit_slots > 0 if has_numa_term else True
    alignment = NUMA.score(evaluation).value if has_numa_term else 1.0
    utilization = (_compute_utilization(evaluation) + tie * alignment) / (1 + tie)
    weight = weights.get(NUMA.name, 0.0) + weights.get(PACKING.name, 0.0)
    if evaluation.capacity.fills_nodes:
        return weight * utilization  # an idle node is the least full one
    return weight * (_COMPACT * is_unsplit + _FULL * utilization) / (_COMPACT + _FULL)


class Weights:
    """The terms that apply to a signature, with their weights."""

    def __init__(self, signature: scheduling_signature.SchedulingSignature) -> None:
        placement = signature.fabric.placement
        weights = [(term, term.get_weight(placement)) for term in TERMS]
        self._weighted = [(term, weight) for term, weight in weights if weight is not None]
        self._by_name = {term.name: weight for term, weight in self._weighted}
        self._is_single_pod = signature.is_single_pod
        self._locality = placement.weights.locality if signature.domains else 0.0
        self._total = self._locality + sum(self._by_name.values())

    @property
    def terms(self) -> list[ScoreTerm]:
        """Return the terms that apply, except locality."""
        return [term for term, _ in self._weighted]

    def score(self, evaluation: node_evaluation.NodeEvaluation) -> float:
        """Return the score without locality, 0..100. For a single-pod job the fill order replaces some terms."""
        if evaluation.refusal or self._total <= 0:
            return 0.0
        replaced = _REPLACED_TERMS if self._is_single_pod else ()
        total = sum(
            weight * term.score(evaluation).value for term, weight in self._weighted if term.name not in replaced
        )
        if self._is_single_pod:
            total += _score_fill_order(evaluation, self._by_name)
        return 100.0 * total / self._total

    def compute_fill_order(self, evaluation: node_evaluation.NodeEvaluation) -> FillOrder:
        """Return the sort key of a node for a single-pod job; () for other jobs."""
        return _compute_fill_order(evaluation) if self._is_single_pod else ()

    def score_locality(self, value: float) -> float:
        """Return the score, 0..100, that a locality value of 0..1 adds."""
        return 100.0 * self._locality * value / self._total if self._total > 0 else 0.0


# --- kube-scheduler's integers --------------------------------------------------------------------------------

MAX_PRIORITY = 10  # extenderv1.MaxExtenderPriority
_HIGHEST = 100.0


class KubePriorities(dict[float, int]):
    """Score -> integer, computed once for each distinct score: 5,000 nodes have few of them."""

    def __init__(self, best: float) -> None:
        super().__init__()
        self._best = best

    def __missing__(self, score: float) -> int:
        priority = self[score] = self._compute_priority(score)
        return priority

    def _compute_priority(self, score: float) -> int:
        if self._best <= 0:
            return 0  # the pod did not opt in, or all nodes are infeasible or not in the cache
        lost = math.sqrt(max(0.0, self._best - score) * MAX_PRIORITY * MAX_PRIORITY / _HIGHEST)
        return max(0, MAX_PRIORITY - int(lost + 0.5))
