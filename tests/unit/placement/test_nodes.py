"""Nodes: eligibility, the terms of the score, and an index without past states."""

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import (
    GPU,
    RESOURCES,
    TWO_SIDED,
    build_cluster,
    build_leaves,
    build_node,
    build_pod,
    build_pod_with,
    build_policy,
    build_report,
    build_request,
    explain,
    score_once,
)

from railwright.fabric import node_views, views
from railwright.fabric.placement import engine
from railwright.fabric.placement.nodes import eligibility, node_evaluation, node_index, score_terms

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def eligible(spec: dict, **node_fields) -> bool:
    state = build_cluster([build_node("n", "a", labels={"zone": "z1", "size": "8"}, **node_fields)])
    known, converted = state.nodes["n"], msgspec.convert(spec, views.PodSpec)
    return eligibility.admits_pod(known, converted) and eligibility.matches_selectors(known, converted)


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
    ({"key": "gpu", "operator": "Equal", "value": "yes"}, True),
    ({"key": "gpu", "operator": "Equal", "value": "no"}, False),
    ({"key": "other", "operator": "Equal", "value": "yes"}, False),
    ({"key": "gpu", "operator": "In", "value": "yes"}, False),
    ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
]


def test_a_node_with_a_taint_is_eligible_only_for_a_pod_that_tolerates_it():
    for toleration, expected in TOLERATIONS:
        spec = {"tolerations": [toleration]} if toleration else {}
        assert eligible(spec, taints=[TAINT]) is expected, toleration


SELECTIONS = [
    ({"nodeSelector": {"zone": "z1"}}, True),
    ({"nodeSelector": {"zone": "z2"}}, False),
    (require("zone", "In", "z1", "z3"), True),
    (require("zone", "In", "z2"), False),
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


def test_a_node_is_eligible_only_if_the_node_selector_and_required_affinity_match():
    for spec, expected in SELECTIONS:
        assert eligible(spec) is expected, spec


def compare(operator: str, label: str, *values: str) -> bool:
    return eligibility._matches_expression(
        views.Requirement(key="x", operator=operator, values=list(values)), {"x": label}
    )


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_gt_and_lt_compare_a_label_with_the_value_of_the_expression(number, bound):
    assert compare("Gt", str(number), str(bound)) is (number > bound)
    assert compare("Lt", str(number), str(bound)) is (number < bound)
    assert compare("Gt", "+5", "1")
    assert compare("Gt", "007", "1")


NO_NUMBERS = ("", " 1", "1 ", "1_000", "\u0661", "\u00b2", "0x10", "1.5", "1e3", "--1", "9" * 19, "9" * 5000, "inf")


@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_gt_and_lt_match_only_one_value_and_a_label_that_are_64_bit_integers(operator):
    for text in NO_NUMBERS:
        assert not compare(operator, text, "7"), text
        assert not compare(operator, "7", text), text
    assert not compare(operator, "7")
    assert not compare(operator, "7", "1", "9")


def test_node_selectors_with_too_many_requirements_are_not_evaluated():
    """Comparing them with each node would delay other requests."""
    for count, expected in ((100, True), (300, False)):
        for spec in (
            require("zone", "In", *map(str, range(count))),
            {"nodeSelector": dict.fromkeys(map(str, range(count)), "")},
        ):
            assert eligibility.depends_on_labels(msgspec.convert(spec, views.PodSpec)) is expected


def test_a_cordoned_node_is_not_eligible():
    assert not eligible({}, unschedulable=True)


def test_a_node_that_is_not_ready_is_not_eligible():
    tree = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    state = build_cluster([msgspec.convert(tree, node_views.Node)])
    assert not eligibility.admits_pod(state.nodes["n"], views.PodSpec())


# --- terms of the score ---------------------------------------------------------------------------------------


def score_power(node_class: node_evaluation.NodeClass) -> float:
    """Prefer nodes with few free devices, which draw less power when idle."""
    return 1 / (1 + sum(row.free for row in node_class.facts.devices))


# its weight is above that of all other terms together
POWER = score_terms.ScoreTerm(
    "power",
    4 * sum(term.weight for term in score_terms.TERMS),
    score_power,
    lambda _: "draws less power",
)


@pytest.mark.parametrize("size", [1, 2], ids=["single-pod job", "gang"])
def test_a_score_term_added_to_the_table_changes_the_scores_and_is_explained(size, monkeypatch):
    monkeypatch.setattr(score_terms, "TERMS", (*score_terms.TERMS, POWER))
    cluster = build_cluster(build_leaves(a=2), [build_pod("busy", on="a-01", gpus=4, rails=0)], {"train/g": size})
    request = build_request(build_pod("w-0", group="g", gpus=2, rails=0), list(cluster.nodes), build_policy(domains=[]))
    decision = score_once(request, cluster)
    terms = {name: explanation.terms["power"] for name, explanation in explain(decision).items()}
    assert terms["a-00"][1] == "draws less power"
    assert decision.scores["a-01"] > decision.scores["a-00"]


# --- slots on NUMA nodes --------------------------------------------------------------------------------------


HALF = {GPU: "4", RESOURCES[0]: "1", RESOURCES[1]: "1"}


HALVES = [build_pod_with(f"half-{side}", {GPU: "2", RESOURCES[side]: "1"}, on="n") for side in (0, 2)]
UNSPLIT = {  # pods on the node, the requests of a pod, pods of its gang: slots, and if one is without a split
    "GPUs on the other NUMA node than the rails": ((), HALF, 2, (2, True)),
    "the same for a single-pod job, which uses no rail": ((), HALF, 1, (1, True)),
    "two GPUs left on each NUMA node": (HALVES, {GPU: "4", RESOURCES[0]: "1"}, 2, (1, False)),
    "as many NUMA nodes as on an empty node": ((), {GPU: "6", RESOURCES[0]: "1"}, 2, (1, True)),
}


@pytest.mark.parametrize(("pods", "requests", "size", "expected"), UNSPLIT.values(), ids=UNSPLIT)
def test_a_slot_is_split_if_it_uses_more_numa_nodes_than_on_an_empty_node(pods, requests, size, expected):
    state = build_cluster([build_node("n", "leaf", rails_each=2)], pods, {"train/g": size})
    request = build_request(build_pod_with("p", requests, group="g"), ["n"], build_policy(shapes=[TWO_SIDED]))
    index = engine.PlacementEngine(state).get_index(request)
    node_class = index.find_classes(["n"])[0]
    assert (len(node_class.slot_numa_factors), node_class.has_unsplit_slot) == expected


# --- the node index -------------------------------------------------------------------------------------------


def test_an_index_of_earlier_rail_resources_is_updated_when_it_is_used_again():
    state = build_cluster([build_node("n")])
    indexes = engine.PlacementEngine(state)
    request = build_request(build_pod_with("p", {GPU: "8"}), ["n"])
    fabric = msgspec.structs.replace(request.fabric, rails=request.fabric.rails[:1])
    for pod_request in (request, msgspec.structs.replace(request, fabric=fabric)):
        assert indexes.get_index(pod_request).find_classes(["n"])[0].slot_numa_factors
    state.upsert_pod(build_pod_with("other", {GPU: "8"}, on="n"))
    assert not indexes.get_index(request).find_classes(["n"])[0].slot_numa_factors


NODES = [f"n{number}" for number in range(500)]
_MIB = 1024**2


def test_the_index_forgets_past_states_of_nodes(monkeypatch):
    monkeypatch.setattr(node_index, "MAX_STATES", len(NODES))
    state = build_cluster([build_node(name) for name in NODES])
    indexes = engine.PlacementEngine(state)
    request = build_request(build_pod_with("waiting", {GPU: "8"}), NODES)

    def measure_peak(first):
        """Change all nodes twenty times, each to a state of its own."""
        tracemalloc.reset_peak()
        for turn in range(first, first + 20):
            for number, name in enumerate(NODES):
                requests = {"memory": str(turn * len(NODES) + number + 1)}
                state.upsert_pod(build_pod_with(f"on-{name}", requests, on=name))
            assert all(indexes.get_index(request).find_classes(NODES))
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        before = measure_peak(0)
        assert measure_peak(20) - before < _MIB / 2
    finally:
        tracemalloc.stop()


def test_nodes_in_the_same_state_are_evaluated_once_for_equal_pods(monkeypatch):
    """Twice would take twice the time and memory for the first pod of a kind."""
    evaluated, admits = [], eligibility.admits_pod
    monkeypatch.setattr(eligibility, "admits_pod", lambda node, spec: evaluated.append(node.name) or admits(node, spec))
    pods = [build_pod_with(f"on-{name}", {"memory": str(number + 1)}, on=name) for number, name in enumerate(NODES)]
    used = engine.PlacementEngine(build_cluster([build_node(name, "l0") for name in NODES], pods))
    for number in range(2):
        assert used.score(build_request(build_pod(f"job-{number}"), NODES)).scores
    assert sorted(evaluated) == sorted(NODES)


def test_a_topology_report_applies_only_to_its_own_node():
    """Nodes report their NUMA nodes one after another, as when the exporter is rolled out."""
    cluster = build_cluster([build_node("a", "l0"), build_node("b", "l0")])
    used = engine.PlacementEngine(cluster)
    used.score(build_request(build_pod("first", gpus=8), ["a", "b"]))  # both nodes are in one state
    cluster.upsert_topology(build_report(4, 4, name="a", rails=[RESOURCES, []]))
    request = build_request(build_pod("second", gpus=6), ["a", "b"])
    scores = used.score(request).scores
    assert scores == engine.PlacementEngine(cluster).score(request).scores
    assert scores["a"] < scores["b"], "rails beside the wrong GPUs"


def test_without_domains_the_weight_of_the_locality_term_goes_to_the_other_terms():
    nodes = [build_node("bare", rails_each=0), build_node("full")]
    request = build_request(build_pod("p"), ["bare", "full"], build_policy(domains=[]))
    explanations = explain(score_once(request, build_cluster(nodes)))
    assert explanations["full"].score == 100
    assert "locality" not in explanations["full"].terms
