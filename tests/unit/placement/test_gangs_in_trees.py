"""Gangs placed pod by pod in small trees of domains, alone and in turns: the node of each rank, and the reasons."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from placing import (
    GPU,
    LEAF,
    RESOURCES,
    SPINE,
    TWO_SIDED,
    build_leaves,
    build_node,
    build_pod,
    build_pod_with,
    build_policy,
    explain,
)
from scheduling_loop import Loop, gang
from wording import texts

from railwright.fabric.policy import compiled

PRODUCT = "nvidia.com/gpu.product"


# --- node types --------------------------------------------------------------------------------------------


def test_the_explanation_of_a_node_of_another_type_names_the_type_that_the_gang_uses():
    types = [(leaf, number, "AAB"[number]) for leaf in ("a", "b") for number in range(3)]
    loop = Loop([build_node(f"{leaf}-{number}", leaf, "s", labels={PRODUCT: name}) for leaf, number, name in types])
    pods = loop.create(4)
    messages = explain(loop.decide(pods[0]))["a-2"].terms["locality"][1]
    assert "the gang uses only nodes of type A" in messages
    assert "slow" not in messages


# --- launchers ---------------------------------------------------------------------------------------------


def test_a_launcher_is_not_part_of_the_ring_of_its_workers():
    head = build_node("cpu-0", "racks", "s9", rails_each=0)
    loop = Loop([head, *build_leaves(a=2, b=4)], [], build_policy(oversubscription=[7, 7]))
    launcher = build_pod("g-launcher-0", group="g", gpus=0, rails=0, on="cpu-0")
    workers = gang(4, build_pod)
    loop.submit([launcher, *workers])
    assert loop.decide(workers[0]).plan.bandwidth == 1.0
    assert loop.leaves(workers) == ["b"] * 4


# --- NICs that peers share, and uplinks --------------------------------------------------------------------


def test_the_reason_for_less_bandwidth_names_nics_that_peers_would_share():
    loop = Loop([build_node("a-00", "a", rails_each=100)], [], build_policy())
    pods = loop.create(2, gpus=4)
    assert "too few NICs for 2 pods of the gang on 1 node" in " ".join(texts(loop.explain_plan(pods[0]).why))


def test_rails_with_switches_of_their_own_have_uplinks_of_their_own():
    own, shared = build_policy(domains=["example.com/leaf-{rail}", SPINE]), build_policy()
    assert compiled.has_own_uplinks(own.document.fabrics["roce"].placement)
    assert not compiled.has_own_uplinks(shared.document.fabrics["roce"].placement)


# --- nodes that other jobs use a part of -------------------------------------------------------------------


def build_half_used(used, idle, shapes=()):
    """Return a cluster of two leaves. On the nodes of one, another pod uses the GPUs beside the first two rails."""
    requests = {GPU: "4", RESOURCES[1]: "1"}
    others = [build_pod_with(f"other-{node}", requests, on=f"used-{node:02}") for node in range(used)]
    return Loop(build_leaves(used=used, idle=idle), others, build_policy(shapes=shapes))


def build_half(name, group):
    return build_pod_with(name, {GPU: "4", RESOURCES[0]: "1"}, group=group)


def test_a_gang_stays_on_one_leaf_even_if_it_needs_slower_nodes_there():
    """The faster nodes elsewhere are too few for it. Pods there would wait for their peers on the slower nodes."""
    loop = build_half_used(4, 3, [TWO_SIDED])
    pods = loop.create(4, build_half)
    assert loop.decide(pods[0]).plan.bandwidth < 1
    assert loop.leaves(pods) == ["used"] * 4


def test_a_gang_goes_to_a_leaf_with_partly_used_nodes_so_that_idle_nodes_stay_free():
    loop = build_half_used(3, 2)
    assert loop.leaves(loop.create(2, build_half)) == ["used"] * 2


# --- gangs whose pods come in turns: the first has the prior right to its leaves ------------------------------


SIZES = {"a": 4, "b": 3, "c": 2}  # nodes of each leaf


def build_loop(sizes, pods, *, ratio=7.0, announces=False):
    """Return a cluster of these leaves, and the gangs of `pods`, numbers of pods by name."""
    given_policy = build_policy(domains=[LEAF], oversubscription=[ratio])
    loop = Loop(build_leaves(**sizes), [], given_policy, announces=announces)
    return loop, {name: loop.create(count, group=name) for name, count in pods.items()}


def place_in_turns(loop, gangs, order):
    """Place the pods in the order of their gangs' names. Return the leaves of each gang, by rank."""
    placed = {name: [] for name in gangs}
    for name in order:
        placed[name] += loop.leaves([gangs[name][len(placed[name])]])
    return placed


def compute_bandwidth(placed, sizes, ratio=7.0):
    """Return the bandwidth of a ring: each edge out of a leaf has an equal part of the leaf's uplinks."""
    exits = [here for here, after in zip(placed, placed[1:] + placed[:1], strict=True) if here != after]
    return min([1.0, *(sizes[leaf] / (ratio * exits.count(leaf)) for leaf in exits)])


@given(st.data())
def test_gangs_placed_pod_by_pod_in_any_order_keep_the_planned_bandwidth(data):
    sizes = {leaf: data.draw(st.integers(1, 6)) for leaf in "abcde"[: data.draw(st.integers(2, 5))]}
    pods = {name: data.draw(st.integers(2, 5)) for name in "opq"[: data.draw(st.integers(2, 3))]}
    assume(sum(pods.values()) <= sum(sizes.values()))
    order = data.draw(st.permutations([name for name, count in pods.items() for _ in range(count)]))
    announces = data.draw(st.booleans(), label="the scheduler announces its choices")
    mixed = place_in_turns(*build_loop(sizes, pods, announces=announces), order)
    alone = place_in_turns(
        *build_loop(sizes, pods, announces=announces),
        [name for name in dict.fromkeys(order) for _ in range(pods[name])],
    )
    values, expected = ({name: compute_bandwidth(placed[name], sizes) for name in pods} for placed in (mixed, alone))
    assert values == expected


def place_first_pod():
    """Return a cluster in which the gang `o` has begun in the only leaf that could hold either gang."""
    loop, gangs = build_loop(SIZES, {"o": 4, "t": 4})
    loop.place(gangs["o"][:1])
    return loop, gangs


@pytest.mark.parametrize(
    ("deleted", "slots"),
    [(slice(None), 4), (slice(1, None), 3), (slice(1), 4)],
    ids=["all its pods", "those that wait", "its only placed pod"],
)
def test_deleted_pods_of_a_partly_placed_gang_free_its_reserved_nodes(deleted, slots):
    loop, gangs = place_first_pod()
    assert ("a",) not in loop.decide(gangs["t"][0]).plan.leaves
    for member in gangs["o"][deleted]:
        loop.state.remove_pod(member.metadata.uid)
    plan = loop.decide(gangs["t"][0]).plan
    assert plan.slots_by_leaf[("a",)] == slots
    assert (plan.leaves == (("a",),)) == (slots == 4)


def test_a_pod_may_use_the_last_free_nodes_of_a_partly_placed_gang():
    """Nodes are not reserved: a pod without another node gets one of the gang that has begun."""
    loop, gangs = build_loop({"a": 4}, {"o": 4, "t": 1})
    loop.place(gangs["o"][:1])
    assert loop.leaves(gangs["t"]) == ["a"]


def test_a_gang_without_a_placed_pod_reserves_nothing():
    loop, gangs = build_loop(SIZES, {"o": 4, "t": 4})
    loop.decide(gangs["o"][0])
    assert loop.decide(gangs["t"][0]).plan.leaves == (("a",),)


def test_the_explanation_names_a_gang_for_which_nodes_are_left_free_and_none_without_a_plan():
    loop, gangs = build_loop(SIZES, {"x": 12, "o": 3, "t": 4})
    loop.place(gangs["x"][:1])
    loop.place(gangs["o"][:1])
    assert texts(loop.explain_plan(gangs["t"][0]).why)[-1] == "nodes are left free for partly placed gangs: train/o"
