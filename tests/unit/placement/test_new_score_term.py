"""A score term is one class and one row: added to the table, it changes scores and explanations."""

import msgspec
import pytest
from placing import build_cluster, build_request, explain, leaves, pod, policy, score_once
from wording import text

from railwright.fabric.placement.nodes import node_evaluation, score_terms
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code


class PowerTerm(msgspec.Struct, frozen=True):
    """Prefers nodes with few free devices, which draw less power when idle."""

    name: str = "power"

    def get_weight(self, placement: model.Placement) -> float:
        """Return a weight above that of all other terms together."""
        return 4 * (placement.weights.rails + placement.weights.numa + placement.weights.packing)

    def score(self, evaluation: node_evaluation.NodeEvaluation) -> score_terms.TermScore:
        """Return 1 for a node without free devices."""
        free = sum(evaluation.facts.free)
        detail = reason.make(Code.TERM_DETAIL, detail=f"{free} milli-devices free")
        return score_terms.TermScore(1 / (1 + free), detail)


@pytest.mark.parametrize("size", [1, 2], ids=["single-pod job", "gang"])
def test_a_term_added_to_the_table_changes_the_scores_and_is_explained(size, monkeypatch):
    monkeypatch.setattr(score_terms, "TERMS", (*score_terms.TERMS, PowerTerm()))
    cluster = build_cluster(leaves(a=2), [pod("busy", on="a-01", gpus=4, rails=0)], {"train/g": size})
    request = build_request(pod("w-0", group="g", gpus=2, rails=0), list(cluster.nodes), policy(domains=[]))
    decision = score_once(request, cluster)
    terms = {name: explanation.terms["power"] for name, explanation in explain(decision).items()}
    assert terms["a-01"].value > terms["a-00"].value
    assert text(terms["a-00"].reason) == "12000 milli-devices free"
    assert decision.scores["a-01"] > decision.scores["a-00"]
