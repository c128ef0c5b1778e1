"""Nodes: which are eligible, what a term of the score is, and an index that forgets past states."""

import tracemalloc

import msgspec
import pytest
from placing import (
    GPU,
    build_cluster,
    build_pod_with,
    build_request,
    create_assumed_pods,
    explain,
    leaves,
    node,
    pod,
    policy,
    score_once,
)
from wording import text

from railwright.fabric import node_views, resources, views
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.nodes import eligibility, node_evaluation, request_view, score_terms
from railwright.fabric.placement.state import gang_status
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def eligible(spec: dict, **node_fields) -> bool:
    state = build_cluster([node("n", "a", labels={"zone": "z1", "size": "8"}, **node_fields)])
    return eligibility.is_eligible(state.nodes["n"], msgspec.convert(spec, views.PodSpec))


def require(key: str, operator: str, *values: str) -> dict:
    return require_term({"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]})


def require_term(term: dict) -> dict:
    terms = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


TOLERATIONS = [
    (None, False),
    ({"key": "gpu", "operator": "Exists"}, True),
    ({"operator": "Exists"}, True),
    ({"key": "gpu", "value": "yes"}, True),
    ({"key": "gpu", "value": "no"}, False),
    ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
]


def test_a_taint_repels_unless_tolerated():
    for toleration, expected in TOLERATIONS:
        spec = {"tolerations": [toleration]} if toleration else {}
        assert eligible(spec, taints=[TAINT]) is expected, toleration


SELECTIONS = [
    ({"nodeSelector": {"zone": "z1"}}, True),
    ({"nodeSelector": {"zone": "z2"}}, False),
    (require("zone", "In", "z1", "z3"), True),
    (require("zone", "In", "z2"), False),
    (require("zone", "NotIn", "z2"), True),
    (require("other", "NotIn", "z2"), True),
    (require("zone", "Exists"), True),
    (require("zone", "DoesNotExist"), False),
    (require("size", "Gt", "7"), True),
    (require("size", "Lt", "8"), False),
    (require("zone", "Gt", "7"), False),
    (require("zone", "Like", "z*"), False),
    ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}, False),
    (require_term({}), False),
    (require_term({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}), True),
    (require_term({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}), False),
    (require_term({"matchExpressions": [{"key": "zone", "operator": "In", "values": None}]}), False),
]


def test_selectors_and_required_affinity_decide():
    for spec, expected in SELECTIONS:
        assert eligible(spec) is expected, spec


def test_a_cordoned_node_is_not_eligible():
    assert not eligible({}, unschedulable=True)


def test_a_node_that_is_not_ready_is_not_eligible():
    tree = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    state = build_cluster([msgspec.convert(tree, node_views.Node)])
    assert not eligibility.is_eligible(state.nodes["n"], views.PodSpec())


# --- terms of the score ---------------------------------------------------------------------------------------


def score_power(evaluation: node_evaluation.NodeEvaluation) -> score_terms.TermScore:
    """Prefer nodes with few free devices, which draw less power when idle."""
    free = sum(evaluation.facts.free)
    detail = reason.make(Code.TERM_DETAIL, detail=f"{free} milli-devices free")
    return score_terms.TermScore(1 / (1 + free), detail)


# its weight is above that of all other terms together
POWER = score_terms.ScoreTerm(
    "power",
    lambda placement: 4 * (placement.weights.rails + placement.weights.numa + placement.weights.packing),
    score_power,
)


@pytest.mark.parametrize("size", [1, 2], ids=["single-pod job", "gang"])
def test_a_term_added_to_the_table_changes_the_scores_and_is_explained(size, monkeypatch):
    monkeypatch.setattr(score_terms, "TERMS", (*score_terms.TERMS, POWER))
    cluster = build_cluster(leaves(a=2), [pod("busy", on="a-01", gpus=4, rails=0)], {"train/g": size})
    request = build_request(pod("w-0", group="g", gpus=2, rails=0), list(cluster.nodes), policy(domains=[]))
    decision = score_once(request, cluster)
    terms = {name: explanation.terms["power"] for name, explanation in explain(decision).items()}
    assert terms["a-01"].value > terms["a-00"].value
    assert text(terms["a-00"].reason) == "12000 milli-devices free"
    assert decision.scores["a-01"] > decision.scores["a-00"]


# --- the node index -------------------------------------------------------------------------------------------


NODES = [f"n{number}" for number in range(500)]
_MIB = 1024**2


def test_past_states_of_nodes_do_not_fill_the_memory():
    state = build_cluster([node(name) for name in NODES])
    indexes = engine.PlacementEngine(state, create_assumed_pods())
    request = build_request(build_pod_with("waiting", {GPU: "8"}), NODES)

    def measure_peak(first):
        """Change all nodes twenty times, each to a state of its own."""
        tracemalloc.reset_peak()
        for turn in range(first, first + 20):
            for number, name in enumerate(NODES):
                requests = {"memory": str(turn * len(NODES) + number + 1)}
                state.upsert_pod(build_pod_with(f"on-{name}", requests, on=name))
            assert len(indexes.get_index(request).class_of_node) == len(NODES)
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        before = measure_peak(0)
        assert measure_peak(20) - before < _MIB / 2
    finally:
        tracemalloc.stop()


def test_the_overrides_of_nodes_with_peers_are_in_one_order_in_every_process():
    peers = [pod(f"job-{number}", group="gang", gpus=4, on=f"n{number:02}") for number in range(12)]
    cluster = build_cluster([node(f"n{number:02}", "a", rails_each=100) for number in range(12)], peers)
    asked = pod("job-12", group="gang", gpus=4)
    offer = scheduling_request.NodeOffer(idle=resources.FrozenAmounts({GPU: 3000}))
    request = msgspec.structs.replace(
        build_request(asked, cluster.nodes), offers=dict.fromkeys(reversed(cluster.nodes), offer)
    )
    assumed = create_assumed_pods()
    placed = gang_status.build_status(request, cluster, assumed).placed
    index = engine.PlacementEngine(cluster, assumed).get_index(request)
    overrides = request_view.find_overrides(request, index, cluster, assumed, placed=placed, retried_uids=())
    assert list(overrides) == sorted(cluster.nodes)
