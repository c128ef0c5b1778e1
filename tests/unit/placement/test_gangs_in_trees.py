"""Gangs placed pod by pod in small trees of domains: where each rank has to go, and why nowhere else."""

import pytest
from placing import LEAF, SPINE, node, pod, policy
from scheduling_loop import Loop, gang

PRODUCT = "nvidia.com/gpu.product"


def tree(*leaves, prefix="leaf"):
    """Nodes of leaves given as (spine, nodes) or (spine, nodes, product)."""
    for number, (spine, size, *product) in enumerate(leaves):
        labels = {PRODUCT: product[0]} if product else {}
        for index in range(size):
            yield node(f"{prefix}-{number}-{index:02}", f"{prefix}-{number}", spine, labels=labels)


def taken(*names):
    return [pod(f"other-{name}", on=name) for name in names]


def mixed(*leaves):
    """Nodes of leaves given as lists of products, all below one spine."""
    for number, products in enumerate(leaves):
        for index, product in enumerate(products):
            yield node(f"leaf-{number}-{index:02}", f"leaf-{number}", "s0", labels={PRODUCT: product})


# --- domains that mates are in -----------------------------------------------------------------------------


def test_the_rest_of_a_gang_stays_below_the_spine_whose_uplinks_would_hold_it_up():
    nodes = [*tree(("s0", 2), ("s0", 1), ("s0", 1), ("s1", 8))]
    busy = taken(*(f"leaf-3-{index:02}" for index in range(6)))
    loop = Loop(nodes, busy, policy(domains=[LEAF, SPINE, "core"], oversubscription=[1, 8, 1]))
    pods = gang(4, pod)
    loop.submit(pods)
    assert set(loop.leaves(pods)) == {"leaf-0", "leaf-1", "leaf-2"}


def test_where_mates_have_left_a_weak_spine_already_the_plan_says_what_that_costs():
    nodes = [*tree(("s0", 2), ("s0", 2), ("s1", 8))]
    loop = Loop(nodes, [], policy(domains=[LEAF, SPINE, "core"], oversubscription=[1, 8, 1]))
    pods = gang(4, pod)
    loop.submit(pods)
    for rank, name in enumerate(["leaf-0-00", "leaf-2-00"]):
        loop.state.upsert_pod(pod(f"g-{rank}", group="g", on=name))
    assert loop.asks(pods[2]).plan.bandwidth == 0.5


# --- leaves that others wait for ---------------------------------------------------------------------------


def test_a_gang_that_waits_pushes_nobody_out_of_the_leaf_its_mates_are_in():
    loop = Loop([*tree(("s0", 3), ("s0", 2), ("s0", 2))])
    waiting, pods = gang(3, pod, group="waiting"), gang(5, pod)
    loop.submit(waiting, group="waiting")
    loop.submit(pods)
    assert set(loop.asks(waiting[0]).plan.leaves) == {("leaf-0", "s0")}
    assert loop.leaves(pods) == ["leaf-0"] * 3 + ["leaf-1"] * 2


def test_what_a_waiting_gang_is_left_costs_no_spine_either():
    loop = Loop([*tree(("s0", 3), ("s0", 2), ("s1", 2))])
    waiting, pods = gang(2, pod, group="waiting"), gang(5, pod)
    loop.submit(waiting, group="waiting")
    loop.submit(pods)
    loop.state.upsert_pod(pod("x", on="leaf-2-01"))
    assert set(loop.asks(waiting[0]).plan.leaves) == {("leaf-1", "s0")}
    assert loop.leaves(pods[:4]) == ["leaf-0"] * 3 + ["leaf-1"]


# --- node types --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_gang_planned_on_one_node_type_gets_it(seed):
    orders = [["A", "A", "B"], ["A", "B", "A"], ["B", "A", "A"], ["B", "A", "A"]]
    loop = Loop([*mixed(orders[seed], orders[-1 - seed])])
    pods = gang(4, pod)
    loop.submit(pods)
    types = {loop.state.nodes[name].labels[PRODUCT] for name in loop.place(pods)}
    assert types == {"A"}


def test_a_gang_on_two_node_types_already_leaves_each_leaf_once():
    loop = Loop([*mixed(["A"] * 2, ["B"] * 2, ["A"] * 2)], [], policy(oversubscription=[2, 1, 1]))
    pods = gang(5, pod)
    loop.submit(pods)
    leaves = loop.leaves(pods)
    changes = sum(here != following for here, following in zip(leaves, [*leaves[1:], leaves[0]], strict=True))
    assert changes == len(set(leaves)) == 3


def test_the_rest_of_a_gang_keeps_the_node_type_of_its_mates():
    loop = Loop([*mixed(["B"] * 4, ["C"] * 4, ["A"] * 4)])
    pods = gang(4, pod)
    loop.submit(pods)
    loop.state.upsert_pod(pod("g-0", group="g", on="leaf-1-00"))
    loop.state.upsert_pod(pod("x", on="leaf-1-01"))
    loop.state.upsert_pod(pod("y", on="leaf-1-02"))
    assert {loop.state.nodes[name].labels[PRODUCT] for name in loop.place(pods[1:2])} == {"C"}


def test_a_node_of_another_type_is_told_why_it_is_passed_over():
    loop = Loop([*mixed(["A", "A", "B"], ["A", "A", "B"])])
    pods = gang(4, pod)
    loop.submit(pods)
    told = loop.asks(pods[0]).verdicts["leaf-0-02"].terms["locality"][1]
    assert "the gang is kept on nodes of type A" in told
    assert "slow" not in told


# --- spines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", [1, 2])
def test_the_tightest_spine_is_taken_so_that_the_larger_one_stays_whole(leaf):
    spines = [("a", leaf)] * (8 // leaf) + [("b", leaf)] * (4 // leaf)
    loop = Loop([*tree(*spines)], [], policy(oversubscription=[1, 7, 1]))
    small, large = gang(4, pod, group="small"), gang(8, pod, group="large")
    loop.submit(small, group="small")
    assert {loop.state.nodes[name].labels[SPINE] for name in loop.place(small)} == {"b"}
    loop.submit(large, group="large")
    assert loop.asks(large[0]).plan.bandwidth == 1.0


def test_a_single_leaf_is_taken_below_the_spine_with_the_least_room():
    loop = Loop([*tree(*[("a", 2)] * 3, *[("b", 2)] * 2)])
    pods = gang(2, pod)
    loop.submit(pods)
    assert {loop.state.nodes[name].labels[SPINE] for name in loop.place(pods)} == {"b"}
