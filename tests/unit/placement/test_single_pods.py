"""A job of one pod fills partly used nodes first; among equally full ones the alignment of its rails decides."""

import pytest
from placing import (
    GPU,
    LEAF,
    RESOURCES,
    TWO_SIDED,
    build_cluster,
    build_pod_with,
    build_request,
    explain,
    node,
    policy,
    score_once,
)
from wording import text, texts

from railwright.fabric.placement.nodes import score_terms

WHERE = {"one leaf": ("leaf-0", "leaf-0"), "two leaves": ("leaf-0", "leaf-1"), "no domains": ("", "")}


def build_pod(name, gpus, *rails, on=""):
    """Return a pod with this number of GPUs and one device of each rail."""
    return build_pod_with(name, {GPU: str(gpus)} | {RESOURCES[rail]: "1" for rail in rails}, on=on)


def given(where, numa="preferred", **placement):
    return policy(numa=numa, shapes=[TWO_SIDED], domains=[LEAF] if where != "no domains" else [], **placement)


def decide(where, asking, *bound, numa="preferred", rails_each=2, **placement):
    """Return the decision on two nodes, `a` and `b`."""
    nodes = [node(name, leaf, rails_each=rails_each) for name, leaf in zip("ab", WHERE[where], strict=True)]
    policy = given(where, numa, **placement)
    return score_once(build_request(asking, ["a", "b"], policy), build_cluster(nodes, bound))


def describe_score(score):
    return score.value, text(score.reason)


wheres = pytest.mark.parametrize("where", WHERE)


@wheres
def test_of_equally_full_nodes_the_one_with_aligned_rails_is_best(where):
    """On both four GPUs are free. On `a` they are on NUMA node 1; rails 0 and 1 are on NUMA node 0."""
    others = build_pod("left", 4, 0, 1, on="a"), build_pod("right", 4, 2, 3, on="b")
    decision = decide(where, build_pod("p", 4, 0, 1), *others)
    assert decision.scores["b"] > decision.scores["a"]
    steps = score_terms.KubePriorities(best=decision.scores["b"])
    assert 1 <= 10 - steps[decision.scores["a"]] <= 3, "it decides, and is not all of kube-scheduler's scale"
    assert decision.plan.bandwidth == (0.0 if where == "no domains" else 1.0)
    scores = {name: describe_score(explanation.terms["numa"]) for name, explanation in explain(decision).items()}
    assert scores["a"] == (0.0, "0 of 2 rails local to their GPUs, NUMA nodes 0+1")
    assert scores["b"] == (1.0, "GPUs and rails together on NUMA node 0")
    required = explain(decide(where, build_pod("p", 4, 0, 1), *others, numa="required"))
    assert required["a"].refusal
    assert not required["b"].refusal


@wheres
def test_a_fuller_node_is_completed_although_its_rails_are_far(where):
    decision = decide(
        where, build_pod("p", 4, 0, 1), build_pod("left", 4, 0, 1, on="a"), build_pod("right", 3, 2, 3, on="b")
    )
    assert decision.scores["a"] > decision.scores["b"]
    steps = score_terms.KubePriorities(best=decision.scores["a"])
    assert 1 <= 10 - steps[decision.scores["b"]] <= 3
    if where != "no domains":
        assert decision.plan.bandwidth < decision.plan.upper_bound == 1.0, (
            "what it says is true of the node it leads to"
        )
        (why,) = texts(decision.diagnose().why)
        assert "a single-pod job fills partly used nodes first" in why
        assert (
            text(explain(decision)["a"].terms["locality"].reason)
            == "a single-pod job fills partly used nodes first, on any leaf"
        )
    assert describe_score(explain(decision)["a"].terms["numa"]) == (
        0.0,
        "0 of 2 rails local to their GPUs, NUMA nodes 0+1",
    )


@wheres
def test_a_node_in_use_is_completed_before_a_whole_one_is_broken_though_its_rails_are_far(where):
    decision = decide(where, build_pod("p", 4, 0, 1), build_pod("left", 4, 0, 1, on="a"))
    assert decision.scores["a"] > decision.scores["b"]
    if where != "no domains":
        why = text(explain(decision)["b"].terms["locality"].reason)
        assert why == "other nodes are partly used and hold the pod without splitting its GPUs over NUMA nodes"


@wheres
@pytest.mark.parametrize(("goal", "is_idle"), [("bandwidth", True), ("capacity", False)])
def test_a_whole_node_is_broken_before_gpus_are_split_over_numa_nodes_unless_capacity_counts(where, goal, is_idle):
    two_and_two = build_pod("left", 2, 0, 1, on="a"), build_pod("right", 2, 2, 3, on="a")
    decision = decide(where, build_pod("p", 4, 0, 1), *two_and_two, goal=goal)
    assert (decision.scores["b"] > decision.scores["a"]) == is_idle


@wheres
def test_nodes_are_full_by_their_gpus_whatever_is_taken_of_large_pools(where):
    """One device more of a hundred in use is no reason to leave the node whose rails are near."""
    others = build_pod("left", 4, 0, 1, on="a"), build_pod("right", 4, 2, 3, on="b")
    small = [build_pod(f"small-{i}", 0, 0, 1, on="a") for i in range(40)]
    decision = decide(where, build_pod("p", 4, 0, 1), *others, *small, rails_each=100)
    assert decision.scores["b"] > decision.scores["a"]


def test_a_pod_that_must_use_an_idle_node_takes_one_of_the_tightest_leaf():
    nodes = [node("a-0", "leaf-a"), *(node(f"b-{i}", "leaf-b") for i in range(3))]
    state = build_cluster(nodes, [])
    decision = score_once(build_request(build_pod("p", 4, 0, 1), list(state.nodes), given("two leaves")), state)
    assert max(decision.scores, key=decision.scores.__getitem__) == "a-0"


def test_only_offered_nodes_are_completed():
    nodes = [node(f"n-{i:03}", f"leaf-{i // 10}", rails_each=2) for i in range(130)]
    bound = [build_pod("hidden", 4, 2, 3, on="n-129"), build_pod("left", 4, 0, 1, on="n-055")]
    state = build_cluster(nodes, bound)
    offered = [node.metadata.name for node in nodes[:120]]
    decision = score_once(build_request(build_pod("p", 4, 0, 1), offered, given("two leaves")), state)
    assert max(decision.scores, key=decision.scores.__getitem__) == "n-055"
    assert decision.explainer.gang.target_leaf == ("leaf-5",)
