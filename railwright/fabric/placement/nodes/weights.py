"""Weighs the score terms of a signature's policy, and combines them to one score without locality."""

from railwright.fabric.placement.nodes import node_evaluation, scheduling_signature
from railwright.fabric.placement.nodes.terms import completion, registry, score_term


class Weights:
    """The terms that apply to a signature, with their weights."""

    def __init__(self, signature: scheduling_signature.SchedulingSignature) -> None:
        placement = signature.fabric.placement
        weights = [(term, term.get_weight(placement)) for term in registry.TERMS]
        self._weighted = [(term, weight) for term, weight in weights if weight is not None]
        self._by_name = {term.name: weight for term, weight in self._weighted}
        self._is_single_pod = signature.is_single_pod
        self._locality = placement.weights.locality if signature.domains else 0.0
        self._total = self._locality + sum(self._by_name.values())

    @property
    def terms(self) -> list[score_term.ScoreTerm]:
        """Return the terms that apply, except locality."""
        return [term for term, _ in self._weighted]

    def score(self, evaluation: node_evaluation.NodeEvaluation) -> float:
        """Return the score without locality, 0..100. For a single-pod job the fill order replaces some terms."""
        if evaluation.refusal or self._total <= 0:
            return 0.0
        replaced = completion.REPLACED_TERMS if self._is_single_pod else ()
        total = sum(
            weight * term.score(evaluation).value for term, weight in self._weighted if term.name not in replaced
        )
        if self._is_single_pod:
            total += completion.score_fill_order(evaluation, self._by_name)
        return 100.0 * total / self._total

    def compute_fill_order(self, evaluation: node_evaluation.NodeEvaluation) -> completion.FillOrder:
        """Return the sort key of a node for a single-pod job; () for other jobs."""
        return completion.compute_fill_order(evaluation) if self._is_single_pod else ()

    def score_locality(self, value: float) -> float:
        """Return the score, 0..100, that a locality value of 0..1 adds."""
        return 100.0 * self._locality * value / self._total if self._total > 0 else 0.0
