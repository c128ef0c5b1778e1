"""Run in a copy of the tree that has the term `power`."""

import pytest
from placing import build_cluster, build_request, create_assumed_pods, leaves, pod, policy
from wording import text

from railwright.fabric.placement import engine


@pytest.mark.parametrize("size", [1, 2], ids=["single-pod job", "gang"])
def test_the_term_changes_the_scores_and_is_explained(size):
    cluster = build_cluster(leaves(a=2), [pod("busy", on="a-01", gpus=4, rails=0)], {"train/g": size})
    request = build_request(pod("w-0", group="g", gpus=2, rails=0), list(cluster.nodes), policy(domains=[]))
    decision = engine.PlacementEngine(cluster, create_assumed_pods()).score(request)
    terms = {name: explanation.terms["power"] for name, explanation in decision.explanations.items()}
    assert terms["a-01"].value > terms["a-00"].value
    assert text(terms["a-00"].reason) == "12000 milli-devices free"
    assert decision.scores["a-01"] > decision.scores["a-00"]
