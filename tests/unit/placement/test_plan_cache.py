"""Compares decisions from cached plans and node indexes with decisions without caches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import (
    RESOURCES,
    RememberingEngine,
    build_assumed_pod,
    build_cluster,
    build_pod_group,
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

pytestmark = pytest.mark.exhaustive

POLICY = policy(oversubscription=[1, 7])


@st.composite
def clusters(draw):
    """Draw clusters of more nodes than a full offer, some of them in use."""
    sizes = {f"{spine}{leaf}": draw(st.integers(1, 40)) for spine in "ab" for leaf in range(4)}
    nodes = leaves(**sizes, c0=100)
    taken = draw(st.sets(st.integers(0, len(nodes) - 1), max_size=60))
    return nodes, [pod(f"other-{i}", on=nodes[i].metadata.name) for i in taken]


@given(clusters(), st.integers(2, 40), st.data())
def test_cached_plans_do_not_change_decisions(cluster, size, data):
    nodes, others = cluster
    state, assumed = build_cluster(nodes, others, {"train/gang": size}), create_assumed_pods()
    placement_engine = RememberingEngine(state, assumed)
    for rank in range(min(size, 8)):
        task = pod(f"job-{rank}", group="gang")
        free = [name for name in state.nodes if not state.get_used(name) and not list(assumed.list_on_node(name))]
        if not free:
            return
        request = build_request(task, free, POLICY)
        remembered, fresh = placement_engine.score(request), score_once(request, state, assumed)
        assert len(remembered.plan.leaves) == len(fresh.plan.leaves)
        assert remembered.plan.bandwidth == fresh.plan.bandwidth
        assert sorted(remembered.scores.values()) == sorted(fresh.scores.values())
        chosen = data.draw(st.sampled_from(sorted(free)), label="the scheduler's choice") if rank == 3 else None
        best = chosen or max(remembered.scores, key=lambda name: (remembered.scores[name], name))
        assumed.assume(build_assumed_pod(task, best))
        if data.draw(st.integers(0, 4)) == 0 and others:
            state.remove_pod(others.pop().metadata.uid)
        if data.draw(st.integers(0, 6)) == 0:
            assumed.forget(task.metadata.uid)


def crowded(size, **sizes):
    """Return an engine for these leaves and a hundred busy nodes: a full offer, so that plans are cached."""
    nodes = leaves(**sizes, z0=100)
    state = build_cluster(nodes, [pod(f"z-{i}", on=f"z0-{i:02}") for i in range(100)], {"train/g": size})
    return state, create_assumed_pods()


def test_a_cached_plan_is_dropped_when_slots_increase_in_one_of_its_leaves():
    state, assumed = crowded(16, a=10, b=16)
    for i in range(7):
        state.upsert_pod(pod(f"busy-{i}", on=f"b-{i:02}"))
    placement_engine = RememberingEngine(state, assumed)
    request = build_request(pod("job-0", group="g"), list(state.nodes), POLICY)
    assert len(placement_engine.score(request).plan.leaves) == 2
    for i in range(7):
        state.remove_pod(f"uid-busy-{i}")
    assert placement_engine.score(request).plan.leaves == (("b", "s-b"),)


def test_a_cached_plan_is_dropped_when_its_gang_becomes_smaller():
    state, assumed = crowded(16, a=20, b=9)
    placement_engine = RememberingEngine(state, assumed)
    request = build_request(pod("job-0", group="g"), list(state.nodes), POLICY)
    assert placement_engine.score(request).gang.target_leaf == ("a", "s-a")
    state.upsert_pod_group(build_pod_group("train", "g", 8))
    assert placement_engine.score(request).gang.target_leaf == ("b", "s-b"), "the tightest leaf"


def test_a_plan_by_which_no_pod_was_placed_does_not_limit_the_gang():
    """The last of three finds a degraded node alone, waits, and then has a whole one to choose as well."""
    nodes = [*leaves(a=3), node("a-03", "a", "s-a", capacity={RESOURCES[0]: "2"})]
    state = build_cluster(nodes, [], {"train/g": 3})
    placement_engine = RememberingEngine(state, create_assumed_pods())
    last = pod("job-2", group="g")
    for rank, name in enumerate(["a-00", "a-01"]):
        placement_engine.score(build_request(pod(f"job-{rank}", group="g"), ["a-00", "a-01", "a-02", "a-03"], POLICY))
        state.upsert_pod(pod(f"job-{rank}", group="g", on=name))
    state.upsert_pod(pod("busy", on="a-02"))
    assert placement_engine.score(build_request(last, ["a-03"], POLICY)).plan.bandwidth == 0.875
    state.remove_pod("uid-busy")
    decision = placement_engine.score(build_request(last, ["a-02", "a-03"], POLICY))
    assert decision.plan.bandwidth == 1.0
    assert "slow the gang down" in text(explain(decision)["a-03"].terms["locality"].reason)


def test_a_node_index_follows_added_changed_and_removed_nodes_and_pods():
    state, assumed = build_cluster(leaves(a=3, b=3)), create_assumed_pods()
    placement_engine = RememberingEngine(state, assumed)

    def scores():
        request = build_request(pod("p"), list(state.nodes), POLICY)
        decision, fresh = placement_engine.score(request), score_once(request, state, assumed)
        assert decision.scores == fresh.scores
        return decision.scores

    before = scores()
    state.upsert_pod(pod("x", on="a-00"))
    assert scores()["a-00"] < before["a-00"]
    state.remove_pod("uid-x")
    assert scores() == before
    state.remove_node("b-02")
    assert "b-02" not in scores()
    for leaf in leaves(c=2):
        state.upsert_node(leaf)
    assert set(scores()) == {"a-00", "a-01", "a-02", "b-00", "b-01", "c-00", "c-01"}
    assumed.assume(build_assumed_pod(pod("y"), "c-00"))
    assert scores()["c-00"] < scores()["c-01"]


def test_prewarming_changes_no_answer():
    nodes = leaves(a=4, b=6)
    state, assumed = build_cluster(nodes, [pod("x", on="a-00")]), create_assumed_pods()
    placement_engine = RememberingEngine(state, assumed)
    placement_engine.prewarm(POLICY.document)
    state.upsert_pod(pod("y", on="b-00"))
    state.remove_node("b-05")
    request = build_request(pod("p"), list(state.nodes), POLICY)
    assert placement_engine.score(request).scores == score_once(request, state, assumed).scores
