"""The memory of gangs, which is an input and output of a decision, and caches, which change no decision."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import (
    GPU,
    RESOURCES,
    RememberingEngine,
    build_assumed_pod,
    build_cluster,
    build_leaves,
    build_node,
    build_pod,
    build_pod_group,
    build_pod_with,
    build_policy,
    build_request,
    explain,
    score_once,
)
from scheduling_loop import Loop

from railwright.fabric.placement import engine
from railwright.fabric.placement.gangs import gang_memory
from railwright.fabric.workloads import volcano

POLICY = build_policy(oversubscription=[1.0, 1.0])


def build_interleaved():
    """Return gangs of four and three, which fit on either leaf, an engine, and requests about their first pods."""
    pods = [build_pod(f"{name}-{rank}", group=name) for name, size in (("one", 4), ("two", 3)) for rank in range(size)]
    state = build_cluster(build_leaves(a=4, b=5), pods, {"train/one": 4, "train/two": 3})
    first, second = (build_request(asked, list(state.nodes), POLICY) for asked in (pods[0], pods[4]))
    return state, engine.PlacementEngine(state), first, second


def test_a_gang_avoids_the_leaf_of_a_partly_placed_gang():
    state, placement, first, second = build_interleaved()
    memory = placement.score(first).memory
    assert placement.score(second, memory).plan.leaves == (("a", "s-a"),), "no pod of the other is placed"
    state.upsert_pod(build_pod("one-0", group="one", on="a-00"))
    assert placement.score(second, memory).plan.leaves == (("b", "s-b"),)
    assert placement.score(second).plan.leaves == (("a", "s-a"),), "the engine itself remembers nothing"


@pytest.mark.parametrize(
    ("rails", "leaves"), [((0, 1), ["b", "c"]), ((2, 3), ["a", "a"])], ids=["the same rails", "other rails"]
)
def test_gangs_with_other_rails_share_the_nodes_of_a_gang_that_is_being_placed(rails, leaves):
    def build_gang(name, rails):
        requests = {GPU: "4", **dict.fromkeys([RESOURCES[rail] for rail in rails], "1")}
        return [build_pod_with(f"{name}-{rank}", requests, group=name) for rank in range(2)]

    loop = Loop(build_leaves(a=2, b=1, c=1), given=POLICY)
    first, second = build_gang("one", (0, 1)), build_gang("two", rails)
    loop.submit(first, group="one")
    loop.submit(second, group="two")
    assert loop.leaves([first[0], *second, first[1]]) == ["a", *leaves, "a"]


def test_a_reservation_ends_with_the_last_unplaced_pod_of_its_gang():
    state, placement, first, second = build_interleaved()
    memory = placement.score(first).memory
    for rank in range(4):
        state.remove_pod(f"uid-one-{rank}")
    decision = placement.score(second, memory)
    assert decision.plan.leaves == (("a", "s-a"),)


def test_the_number_of_remembered_gangs_is_bounded():
    state = build_cluster(build_leaves(a=2))
    placement, memory = engine.PlacementEngine(state), gang_memory.EMPTY
    for number in range(70):
        request = build_request(build_pod(f"p-{number}", group=f"g{number}"), list(state.nodes), POLICY)
        memory = placement.score(request, memory).memory
    assert len(memory) == 64
    assert "train/g69" in memory
    assert "train/g0" not in memory


def test_waiting_gangs_do_not_evict_partly_placed_gangs_from_memory():
    state, placement, first, _ = build_interleaved()
    memory = placement.score(first).memory
    for number in range(70):
        waiting = [build_pod(f"w-{number}-{rank}", group=f"w{number}") for rank in range(10)]
        for pod in waiting:
            state.upsert_pod(pod)
        decision = placement.score(build_request(waiting[0], list(state.nodes), POLICY), memory)
        assert not decision.plan.is_complete
        memory = decision.memory
    assert set(memory) == {"train/one"}


# --- plans and node indexes -----------------------------------------------------------------------------------


UNEVEN = build_policy(oversubscription=[1, 7])


@st.composite
def draw_clusters(draw):
    """Draw clusters of more nodes than a full offer, some of them in use."""
    sizes = {f"{spine}{leaf}": draw(st.integers(1, 40)) for spine in "ab" for leaf in range(4)}
    nodes = build_leaves(**sizes, c0=100)
    taken = draw(st.sets(st.integers(0, len(nodes) - 1), max_size=60))
    return nodes, [build_pod(f"other-{i}", on=nodes[i].metadata.name) for i in taken]


@given(draw_clusters(), st.integers(2, 40), st.data())
def test_the_gang_memory_changes_no_decision_while_no_other_gang_is_placed(cluster, size, data):
    nodes, others = cluster
    state = build_cluster(nodes, others, {"train/gang": size})
    placement_engine = RememberingEngine(state)
    for rank in range(min(size, 8)):
        task = build_pod(f"job-{rank}", group="gang")
        free = [name for name in state.nodes if not state.get_used(name) and not list(state.assumed.list_on_node(name))]
        if not free:
            return
        request = build_request(task, free, UNEVEN)
        remembered, fresh = placement_engine.score(request), score_once(request, state)
        assert len(remembered.plan.leaves) == len(fresh.plan.leaves)
        assert remembered.plan.bandwidth == fresh.plan.bandwidth
        assert sorted(remembered.scores.values()) == sorted(fresh.scores.values())
        chosen = data.draw(st.sampled_from(sorted(free)), label="the scheduler's choice") if rank == 3 else None
        best = chosen or max(remembered.scores, key=lambda name: (remembered.scores[name], name))
        state.assumed.assume(build_assumed_pod(task, best))
        if data.draw(st.integers(0, 4)) == 0 and others:
            state.remove_pod(others.pop().metadata.uid)
        if data.draw(st.integers(0, 6)) == 0:
            state.assumed.forget(task.metadata.uid)


def test_a_gang_is_planned_again_after_it_becomes_smaller():
    state = build_cluster(build_leaves(a=20, b=9), [], {"train/g": 16})
    placement_engine = RememberingEngine(state)
    request = build_request(build_pod("job-0", group="g"), list(state.nodes), UNEVEN)
    assert placement_engine.score(request).target_leaf == ("a", "s-a")
    state.sizes.upsert(volcano.POD_GROUPS, build_pod_group("train", "g", 8))
    assert placement_engine.score(request).target_leaf == ("b", "s-b"), "the tightest leaf"


def test_the_bandwidth_of_a_plan_limits_a_gang_only_once_a_pod_is_placed_by_it():
    """The last of three pods is offered only a degraded node and waits; then a healthy one is offered too."""
    nodes = [*build_leaves(a=3), build_node("a-03", "a", "s-a", capacity={RESOURCES[0]: "2"})]
    state = build_cluster(nodes, [], {"train/g": 3})
    placement_engine = RememberingEngine(state)
    last = build_pod("job-2", group="g")
    for rank, name in enumerate(["a-00", "a-01"]):
        placement_engine.score(
            build_request(build_pod(f"job-{rank}", group="g"), ["a-00", "a-01", "a-02", "a-03"], UNEVEN)
        )
        state.upsert_pod(build_pod(f"job-{rank}", group="g", on=name))
    state.upsert_pod(build_pod("busy", on="a-02"))
    assert placement_engine.score(build_request(last, ["a-03"], UNEVEN)).plan.bandwidth == 0.875
    state.remove_pod("uid-busy")
    decision = placement_engine.score(build_request(last, ["a-02", "a-03"], UNEVEN))
    assert decision.plan.bandwidth == 1.0
    assert "slow the gang down" in explain(decision)["a-03"].terms["locality"][1]
