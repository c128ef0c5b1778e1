"""The interface of a score term. A term is one file, and one row in `registry`."""

from typing import NamedTuple, Protocol

from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason


class TermScore(NamedTuple):
    """The score of a node by one term."""

    value: float  # 0..1
    reason: reason.Reason


class ScoreTerm(Protocol):
    """One aspect of a node's score."""

    @property
    def name(self) -> str:
        """Return the name of the term in explanations."""

    def get_weight(self, placement: model.Placement) -> float | None:
        """Return the weight by the policy, or None if the term does not apply. Weights are normalized before use."""

    def score(self, evaluation: node_evaluation.NodeEvaluation) -> TermScore:
        """Score a node."""
