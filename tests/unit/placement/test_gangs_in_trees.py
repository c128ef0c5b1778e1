"""Gangs placed pod by pod in small trees of domains: the node of each rank, and the reasons."""

import random
from collections import Counter

import msgspec
import pytest
from placing import GPU, LEAF, RESOURCES, SPINE, build_assumed_pod, build_pod_with, explain, node, pod, policy
from scheduling_loop import Loop, gang
from wording import text, texts

from railwright.fabric.policy import model, presets

PRODUCT = "nvidia.com/gpu.product"


def tree(*leaves, prefix="leaf"):
    """Yield nodes of leaves given as (spine, nodes) or (spine, nodes, product)."""
    for number, (spine, size, *product) in enumerate(leaves):
        labels = {PRODUCT: product[0]} if product else {}
        for index in range(size):
            yield node(f"{prefix}-{number}-{index:02}", f"{prefix}-{number}", spine, labels=labels)


def fill_nodes(*names):
    return [pod(f"other-{name}", on=name) for name in names]


def build_mixed_nodes(*leaves):
    """Yield nodes of leaves given as lists of products, all below one spine."""
    for number, products in enumerate(leaves):
        for index, product in enumerate(products):
            yield node(f"leaf-{number}-{index:02}", f"leaf-{number}", "s0", labels={PRODUCT: product})


# --- domains that peers are in -----------------------------------------------------------------------------


def test_the_rest_of_a_gang_stays_below_a_spine_with_weak_uplinks():
    nodes = [*tree(("s0", 2), ("s0", 1), ("s0", 1), ("s1", 8))]
    busy = fill_nodes(*(f"leaf-3-{index:02}" for index in range(6)))
    loop = Loop(nodes, busy, policy(domains=[LEAF, SPINE, "core"], oversubscription=[1, 8, 1]))
    pods = gang(4, pod)
    loop.submit(pods)
    assert set(loop.leaves(pods)) == {"leaf-0", "leaf-1", "leaf-2"}


def test_the_plan_counts_weak_uplinks_that_placed_peers_cross_already():
    nodes = [*tree(("s0", 2), ("s0", 2), ("s1", 8))]
    loop = Loop(nodes, [], policy(domains=[LEAF, SPINE, "core"], oversubscription=[1, 8, 1]))
    pods = gang(4, pod)
    loop.submit(pods)
    for rank, name in enumerate(["leaf-0-00", "leaf-2-00"]):
        loop.state.upsert_pod(pod(f"g-{rank}", group="g", on=name))
    assert loop.decide(pods[2]).plan.bandwidth == 0.5


# --- leaves that others wait for ---------------------------------------------------------------------------


def test_a_waiting_gang_pushes_no_pod_out_of_the_leaf_of_its_peers():
    loop = Loop([*tree(("s0", 3), ("s0", 2), ("s0", 2))])
    waiting, pods = gang(3, pod, group="waiting"), gang(5, pod)
    loop.submit(waiting, group="waiting")
    loop.submit(pods)
    assert set(loop.decide(waiting[0]).plan.leaves) == {("leaf-0", "s0")}
    assert loop.leaves(pods) == ["leaf-0"] * 3 + ["leaf-1"] * 2


def test_a_soft_reservation_costs_other_gangs_no_spine():
    loop = Loop([*tree(("s0", 3), ("s0", 2), ("s1", 2))])
    waiting, pods = gang(2, pod, group="waiting"), gang(5, pod)
    loop.submit(waiting, group="waiting")
    loop.submit(pods)
    loop.state.upsert_pod(pod("x", on="leaf-2-01"))
    assert set(loop.decide(waiting[0]).plan.leaves) == {("leaf-1", "s0")}
    assert loop.leaves(pods[:4]) == ["leaf-0"] * 3 + ["leaf-1"]


# --- node types --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_gang_planned_on_one_node_type_gets_it(seed):
    orders = [["A", "A", "B"], ["A", "B", "A"], ["B", "A", "A"], ["B", "A", "A"]]
    loop = Loop([*build_mixed_nodes(orders[seed], orders[-1 - seed])])
    pods = gang(4, pod)
    loop.submit(pods)
    types = {loop.state.nodes[name].labels[PRODUCT] for name in loop.place(pods)}
    assert types == {"A"}


def test_a_gang_on_two_node_types_crosses_each_leaf_once():
    loop = Loop([*build_mixed_nodes(["A"] * 2, ["B"] * 2, ["A"] * 2)], [], policy(oversubscription=[2, 1, 1]))
    pods = gang(5, pod)
    loop.submit(pods)
    leaves = loop.leaves(pods)
    changes = sum(here != following for here, following in zip(leaves, [*leaves[1:], leaves[0]], strict=True))
    assert changes == len(set(leaves)) == 3


def test_the_rest_of_a_gang_gets_the_node_type_of_its_peers():
    loop = Loop([*build_mixed_nodes(["B"] * 4, ["C"] * 4, ["A"] * 4)])
    pods = gang(4, pod)
    loop.submit(pods)
    loop.state.upsert_pod(pod("g-0", group="g", on="leaf-1-00"))
    loop.state.upsert_pod(pod("x", on="leaf-1-01"))
    loop.state.upsert_pod(pod("y", on="leaf-1-02"))
    assert {loop.state.nodes[name].labels[PRODUCT] for name in loop.place(pods[1:2])} == {"C"}


def test_a_node_of_another_type_has_the_reason_why_it_is_not_used():
    loop = Loop([*build_mixed_nodes(["A", "A", "B"], ["A", "A", "B"])])
    pods = gang(4, pod)
    loop.submit(pods)
    messages = text(explain(loop.decide(pods[0]))["leaf-0-02"].terms["locality"].reason)
    assert "the gang uses only nodes of type A" in messages
    assert "slow" not in messages


# --- spines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", [1, 2])
def test_the_tightest_spine_is_taken_so_that_the_larger_one_stays_whole(leaf):
    spines = [("a", leaf)] * (8 // leaf) + [("b", leaf)] * (4 // leaf)
    loop = Loop([*tree(*spines)], [], policy(oversubscription=[1, 7, 1]))
    small, large = gang(4, pod, group="small"), gang(8, pod, group="large")
    loop.submit(small, group="small")
    assert {loop.state.nodes[name].labels[SPINE] for name in loop.place(small)} == {"b"}
    loop.submit(large, group="large")
    assert loop.decide(large[0]).plan.bandwidth == 1.0


def test_a_single_leaf_is_chosen_below_the_spine_with_the_fewest_slots():
    loop = Loop([*tree(*[("a", 2)] * 3, *[("b", 2)] * 2)])
    pods = gang(2, pod)
    loop.submit(pods)
    assert {loop.state.nodes[name].labels[SPINE] for name in loop.place(pods)} == {"b"}


@pytest.mark.parametrize(("size", "seed"), [(24, 0), (40, 0), (64, 0), (24, 1), (40, 1), (64, 1)])
def test_a_gang_uses_the_fewest_of_thirty_spines(size, seed):
    """30 spines of 8 leaves of 4 nodes, 45 % taken by chance."""
    chance = random.Random(seed)  # noqa: S311 - a test has to repeat
    nodes = [*tree(*[(f"s{spine:02}", 4) for spine in range(30) for _ in range(8)])]
    names = [node.metadata.name for node in nodes]
    loop = Loop(nodes, fill_nodes(*chance.sample(names, round(0.45 * len(names)))))
    pods = gang(size, pod)
    loop.submit(pods)
    plan = loop.decide(pods[0]).plan
    rooms = Counter((loop.leaf_of(name), loop.state.nodes[name].labels[SPINE]) for name in loop.feasible(pods[0]))
    order = sorted(rooms.values(), reverse=True)
    count = next(count for count in range(1, len(order)) if sum(order[:count]) >= size)
    assert len(plan.leaves) == count
    assert len({leaf[1] for leaf in plan.leaves}) == fewest_spines(rooms, size, count)


def fewest_spines(rooms, size, count):
    """Return the lowest number of spines below which so many leaves hold a gang, by trying each number of both."""
    by_spine = {}
    for leaf, room in rooms.items():
        by_spine.setdefault(leaf[1], []).append(room)
    most = {(0, 0): 0}  # (spines, leaves) -> members
    for own in by_spine.values():
        order = sorted(own, reverse=True)
        for (spines, leaves), held in list(most.items()):
            for taken_here in range(1, min(len(order), count - leaves) + 1):
                at = spines + 1, leaves + taken_here
                most[at] = max(most.get(at, 0), held + sum(order[:taken_here]))
    return min(spines for (spines, _), held in most.items() if held >= size)


# --- launchers ---------------------------------------------------------------------------------------------


def test_a_launcher_elsewhere_takes_no_part_in_the_ring_of_its_workers():
    head = node("cpu-0", "racks", "s9", rails_each=0)
    loop = Loop([head, *tree(("s0", 2), ("s1", 4))], [], policy(oversubscription=[7, 7]))
    launcher = pod("g-launcher-0", group="g", gpus=0, rails=0, on="cpu-0")
    workers = gang(4, pod)
    loop.submit([launcher, *workers])
    assert loop.decide(workers[0]).plan.bandwidth == 1.0
    assert loop.leaves(workers) == ["leaf-1"] * 4


# --- where the ring closes ---------------------------------------------------------------------------------


def test_the_last_ranks_go_beside_the_first_where_the_ring_closes():
    loop = Loop([*tree(("s0", 2), ("s0", 2), ("s0", 1))])
    pods = gang(5, pod)
    loop.submit(pods)
    for member, name in zip(pods, ["leaf-0-00", "leaf-1-00"], strict=False):
        loop.assumed.assume(build_assumed_pod(member, name))
    assert loop.leaves(pods[2:]) == ["leaf-1", "leaf-2", "leaf-0"]


def test_a_first_rank_that_is_asked_for_last_stays_with_the_second():
    loop = Loop([*tree(("s0", 4), ("s0", 3))])
    pods = gang(6, pod)
    loop.submit(pods)
    assert loop.leaves(pods[1:]) == ["leaf-0"] * 3 + ["leaf-1"] * 2
    assert loop.leaves(pods[:1]) == ["leaf-0"]


def test_the_ring_is_closed_by_the_ranks_that_do_not_exist_yet():
    loop = Loop([*tree(("s0", 2), ("s0", 2), ("s0", 2))])
    pods = gang(5, pod)
    loop.submit(pods)
    for unseen in pods[3:]:
        loop.state.remove_pod(unseen.metadata.uid)
    for member, name in zip(pods, ["leaf-0-00", "leaf-1-00"], strict=False):
        loop.assumed.assume(build_assumed_pod(member, name))
    assert loop.leaves(pods[2:3]) == ["leaf-1"]


# --- NICs that peers share, and uplinks --------------------------------------------------------------------


HALF = {GPU: "8", RESOURCES[0]: "1", RESOURCES[1]: "1"}


def build_shared_nodes(*leaves):
    """Yield nodes whose rails are shared by up to a hundred pods."""
    for number, size in enumerate(leaves):
        for index in range(size):
            yield node(f"leaf-{number}-{index:02}", f"leaf-{number}", "s0", rails_each=100)


@pytest.mark.parametrize(("uplinks", "value"), [("rail", 4 / 7), ("bundle", 4 / 7)])
def test_two_nodes_are_better_than_one_with_nics_shared_by_two_peers(uplinks, value):
    busy = [f"leaf-{leaf}-{index:02}" for leaf in range(2) for index in range(1, 4)]
    loop = Loop([*build_shared_nodes(4, 4)], fill_nodes(*busy), policy(oversubscription=[7], uplinks=uplinks))
    pods = gang(2, pod, gpus=4)
    loop.submit(pods)
    assert loop.decide(pods[0]).plan.bandwidth == pytest.approx(value)
    assert set(loop.place(pods)) == {"leaf-0-00", "leaf-1-00"}


def test_peers_share_rails_that_they_use_without_requesting_them():
    loop = Loop([*build_shared_nodes(1, 1)], [], policy())
    pods = gang(2, pod, gpus=4, rails=0)
    loop.submit(pods)
    assert len(set(loop.place(pods))) == 2


@pytest.mark.parametrize(("goal", "is_named"), [("bandwidth", False), ("capacity", True)])
def test_the_reasons_say_that_the_bandwidth_leaves_out_shared_nics(goal, is_named):
    loop = Loop([*build_shared_nodes(1, 1)], [], policy(goal=goal))
    pods = gang(4, pod, gpus=4)
    loop.submit(pods)
    assert ("shared with other pods" in " ".join(texts(loop.decide(pods[0]).diagnose().why))) == is_named


@pytest.mark.parametrize(("uplinks", "value"), [("rail", 4 / 7), ("bundle", 1.0), (None, 1.0)])
def test_a_gang_of_half_the_rails_uses_all_uplinks_of_a_shared_switch(uplinks, value):
    busy = [f"leaf-{leaf}-{index:02}" for leaf in range(2) for index in range(1, 4)]
    loop = Loop([*build_shared_nodes(4, 4)], fill_nodes(*busy), policy(oversubscription=[7], uplinks=uplinks))
    half = gang(2, build_pod_with, requests=HALF)
    loop.submit(half)
    assert loop.decide(half[0]).plan.bandwidth == pytest.approx(value)


def test_reasons_name_the_uplinks_and_their_bandwidth():
    busy = [f"leaf-{leaf}-{index:02}" for leaf in range(2) for index in range(1, 4)]
    loop = Loop([*build_shared_nodes(4, 4)], fill_nodes(*busy), policy(oversubscription=[28]))
    half = gang(2, build_pod_with, requests=HALF)
    loop.submit(half)
    messages = " ".join(texts(loop.decide(half[0]).diagnose().why))
    assert "(4 nodes, 28:1, including the uplinks of rails that the gang does not use) carry 0.29" in messages


def test_the_reason_for_less_bandwidth_names_nics_that_peers_would_share():
    loop = Loop([*build_shared_nodes(1)], [], policy())
    pods = gang(2, pod, gpus=4)
    loop.submit(pods)
    assert "too few NICs for 2 pods of the gang on 1 node" in " ".join(texts(loop.decide(pods[0]).diagnose().why))


def test_fabrics_with_a_switch_for_every_rail_have_uplinks_for_every_rail():
    levels = {"domains": ["example.com/leaf-{rail}", SPINE]}
    assert presets.find_uplinks(fabric(**levels).placement) == "rail"
    assert presets.find_uplinks(fabric(**levels, uplinks="bundle").placement) == "bundle"
    assert presets.find_uplinks(fabric().placement) == "bundle"


def fabric(**placement):
    return policy(**placement).document.fabrics["roce"]


# --- gangs of pods of different sizes ----------------------------------------------------------------------


POOLED = {
    "roce": {
        "transport": "roce",
        "rails": [{"name": f"rail{i}", "resource": "rdma/pool"} for i in range(8)],
        "placement": {"domains": [LEAF, SPINE]},
    }
}


def pooled(*leaves):
    """Yield nodes of eight GPUs and a pool of eight devices."""
    for number, size in enumerate(leaves):
        for index in range(size):
            name = f"leaf-{number}"
            yield node(f"{name}-{index:02}", name, "s0", rails_each={"rdma/pool": 8})


def of_sizes(*sizes):
    """Return a gang with these numbers of GPUs and pool devices for each pod."""
    return [
        build_pod_with(f"g-{rank}", {GPU: str(size), "rdma/pool": str(size)}, group="g")
        for rank, size in enumerate(sizes)
    ]


def test_consecutive_small_pods_count_as_one_large_pod():
    fabric_policy = policy()
    document = msgspec.structs.replace(fabric_policy.document, fabrics=msgspec.convert(POOLED, dict[str, model.Fabric]))
    loop = Loop([*pooled(4, 3, 6)], [], msgspec.structs.replace(fabric_policy, document=document))
    pods = of_sizes(8, 8, 4, 2, 1)
    loop.submit(pods)
    first = loop.decide(pods[0])
    assert first.plan.leaves == (("leaf-1", "s0"),)
    assert first.gang.remaining == 5
    assert "all 5 pods" in text(explain(first)["leaf-1-00"].terms["locality"].reason)
    placed = loop.place(pods)
    assert {loop.leaf_of(name) for name in placed} == {"leaf-1"}
    assert len(set(placed)) == 3


def test_small_pods_with_unshared_rails_need_a_node_each():
    loop = Loop([*tree(("s0", 4), ("s0", 3))])
    pods = [pod(f"g-{rank}", group="g", gpus=gpus) for rank, gpus in enumerate([8, 8, 2, 2])]
    loop.submit(pods)
    assert loop.leaves(pods) == ["leaf-0"] * 4
