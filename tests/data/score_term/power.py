"""Scores nodes by their number of free devices: an example of a score term, which is one file and one row."""

from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.nodes.terms import score_term
from railwright.fabric.policy import model
from railwright.fabric.reasons import codes, reason


class PowerTerm:
    """Prefers nodes with few free devices, which draw less power when idle."""

    name = "power"

    def get_weight(self, placement: model.Placement) -> float:
        """Return a weight above that of all other terms together."""
        return 4 * (placement.weights.rails + placement.weights.numa + placement.weights.packing)

    def score(self, evaluation: node_evaluation.NodeEvaluation) -> score_term.TermScore:
        """Return 1 for a node without free devices."""
        free = sum(evaluation.facts.free)
        return score_term.TermScore(
            1 / (1 + free), reason.make(codes.Code.TERM_DETAIL, detail=f"{free} milli-devices free")
        )


TERM = PowerTerm()
