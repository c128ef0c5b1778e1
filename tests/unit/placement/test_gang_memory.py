"""The memory of a gang is a value: a decision gets it and returns it, and the engine stores nothing."""

from placing import (
    build_assumed_pod,
    build_cluster,
    build_pod_with,
    build_request,
    create_assumed_pods,
    leaves,
    node,
    pod,
    policy,
)

from railwright.fabric.placement import engine
from railwright.fabric.placement.gangs import gang_memory
from railwright.fabric.placement.state import assumed_pods

POLICY = policy(oversubscription=[1.0, 1.0])


def build_interleaved():
    """Return two gangs of four, each of which fits on either leaf."""
    state = build_cluster(leaves(a=4, b=5), least={"train/one": 4, "train/two": 4})
    for name in ("one", "two"):
        for rank in range(4):
            state.upsert_pod(pod(f"{name}-{rank}", group=name))
    return state


def test_a_gang_avoids_the_leaf_that_is_reserved_for_another():
    state = build_interleaved()
    placement = engine.PlacementEngine(state, create_assumed_pods())
    first = placement.score(build_request(pod("one-0", group="one"), list(state.nodes), POLICY))
    assert first.plan.leaves == (("a", "s-a"),)
    second = build_request(pod("two-0", group="two"), list(state.nodes), POLICY)
    assert placement.score(second, first.memory).plan.leaves == (("b", "s-b"),)
    assert placement.score(second).plan.leaves == (("a", "s-a"),), "the engine itself remembers no reservation"


def test_the_same_memory_gives_the_same_decision():
    state = build_interleaved()
    placement = engine.PlacementEngine(state, create_assumed_pods())
    memory = placement.score(build_request(pod("one-0", group="one"), list(state.nodes), POLICY)).memory
    request = build_request(pod("two-0", group="two"), list(state.nodes), POLICY)
    one, other = (
        placement.score(request, memory),
        engine.PlacementEngine(state, create_assumed_pods()).score(request, memory),
    )
    assert (one.scores, one.plan, one.memory) == (other.scores, other.plan, other.memory)
    assert memory == placement.score(build_request(pod("one-0", group="one"), list(state.nodes), POLICY)).memory


def test_a_rolled_back_gang_has_no_reservation():
    state = build_interleaved()
    placement = engine.PlacementEngine(state, create_assumed_pods())
    first = placement.score(build_request(pod("one-0", group="one"), list(state.nodes), POLICY))
    second = build_request(pod("two-0", group="two"), list(state.nodes), POLICY)
    assert placement.score(second, first.memory.drop_reservations(["train/one"])).plan.leaves == (("a", "s-a"),)


def test_a_reservation_ends_with_the_last_unplaced_pod_of_its_gang():
    state = build_interleaved()
    placement = engine.PlacementEngine(state, create_assumed_pods())
    memory = placement.score(build_request(pod("one-0", group="one"), list(state.nodes), POLICY)).memory
    for rank in range(4):
        state.remove_pod(f"uid-one-{rank}")
    decision = placement.score(build_request(pod("two-0", group="two"), list(state.nodes), POLICY), memory)
    assert decision.plan.leaves == (("a", "s-a"),)
    assert not decision.memory.get("train/one").reserved


def test_the_memory_of_gangs_is_bounded():
    state = build_cluster(leaves(a=2))
    placement, memory = engine.PlacementEngine(state, create_assumed_pods()), gang_memory.EMPTY
    for number in range(70):
        request = build_request(pod(f"p-{number}", group=f"g{number}"), list(state.nodes), POLICY)
        memory = placement.score(request, memory).memory
    assert len(memory.gangs) == 64
    assert "train/g69" in memory.gangs
    assert "train/g0" not in memory.gangs


def test_an_inferred_pod_counts_for_one_request_and_changes_no_assumed_pod():
    state = build_cluster(leaves(a=2), least={"train/g": 2})
    peer = pod("w-0", group="g")
    state.upsert_pod(peer)
    assumed = create_assumed_pods()
    placement = engine.PlacementEngine(state, assumed)
    request = build_request(pod("w-1", group="g"), list(state.nodes), POLICY)
    before = placement.score(request)
    position = assumed.change_log.position
    inferred = build_assumed_pod(peer, "a-00", state=assumed_pods.State.UNCONFIRMED)
    with_peer = placement.score(request, inferred=[inferred])
    assert (before.gang.remaining, with_peer.gang.remaining) == (2, 1)
    assert with_peer.scores["a-00"] < with_peer.scores["a-01"], "the peer has its devices"
    assert (len(assumed), assumed.change_log.position) == (0, position)
    assert placement.score(request).scores == before.scores


def test_inferred_pods_count_by_the_free_amounts_of_their_node():
    """Both nodes are of one class at first: each has room for more pods than a class distinguishes by CPU."""
    state = build_cluster(leaves(a=3), [build_pod_with("other", {"cpu": "27"}, on="a-01")], {"train/g": 3})
    request = build_request(build_pod_with("w", {"cpu": "1"}, group="g"), list(state.nodes), POLICY)
    placement = engine.PlacementEngine(state, create_assumed_pods())
    peers = [build_pod_with(f"peer-{i}", {"cpu": "100"}) for i in range(2)]
    inferred = [build_assumed_pod(peer, f"a-0{i}") for i, peer in enumerate(peers)]
    rows = {row.node: row for row in placement.score(request, inferred=inferred).rows}
    slots = {name: row.evaluation.facts.fits_by_other_resources for name, row in rows.items()}
    assert slots == {"a-00": 28, "a-01": 1, "a-02": 64}


def test_a_plan_made_with_an_inferred_pod_is_not_reused_without_it():
    """The full offer of 100 nodes makes plans cacheable."""
    nodes = [*leaves(a=2, b=3), *(node(f"z-{i}", "z0", "s-z") for i in range(100))]
    busy = [pod(f"z-{i}", on=f"z-{i}") for i in range(100)]
    state, assumed = build_cluster(nodes, busy, {"train/g": 2, "train/other": 1}), create_assumed_pods()
    state.upsert_pod(pod("w-0", group="g"))
    other = pod("other", group="other")
    state.upsert_pod(other)
    placement = engine.PlacementEngine(state, assumed)
    request = build_request(pod("w-1", group="g"), list(state.nodes), POLICY)
    inferred = build_assumed_pod(other, "a-00", state=assumed_pods.State.UNCONFIRMED)
    assert placement.score(request, inferred=[inferred]).plan.leaves == (("b", "s-b"),)
    assert placement.score(request).plan.leaves == (("a", "s-a"),), "leaf a is the tightest again"
