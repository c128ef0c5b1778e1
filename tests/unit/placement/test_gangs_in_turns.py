"""Gangs whose pods come in turns: the first to begin has the prior right to the leaves that it began with."""

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from placing import LEAF, leaves, pod, policy
from scheduling_loop import Loop, gang
from wording import texts

from railwright.fabric.placement.gangs import gang_memory

SIZES = {"a": 4, "b": 3, "c": 2}  # nodes of each leaf
ORDERS = sorted(set(itertools.permutations("ooootttt")))


def build_loop(sizes, pods, *, ratio=7.0, announces=False):
    """Return a cluster of these leaves, and the gangs of `pods`, which have so many pods, by name."""
    given_policy = policy(domains=[LEAF], oversubscription=[ratio], required=True)
    loop = Loop(leaves(**sizes), [], given_policy, announces=announces)
    gangs = {name: gang(count, pod, group=name) for name, count in pods.items()}
    for name, members in gangs.items():
        loop.submit(members, group=name)
    return loop, gangs


def place(loop, gangs, order):
    """Place the pods in the order of their gangs' names. Return the leaves of each gang, by rank."""
    placed = {name: [] for name in gangs}
    for name in order:
        placed[name] += loop.leaves([gangs[name][len(placed[name])]])
    return placed


def compute_bandwidth(placed, sizes, ratio=7.0):
    """Return the bandwidth of a ring: each edge out of a leaf has an equal part of the leaf's uplinks."""
    exits = [here for here, after in zip(placed, placed[1:] + placed[:1], strict=True) if here != after]
    return min([1.0, *(sizes[leaf] / (ratio * exits.count(leaf)) for leaf in exits)])


@pytest.mark.parametrize("announces", [False, True])
@pytest.mark.parametrize("more", [0, 100])  # one-node leaves: with 100 offered nodes, plans are reused
def test_gangs_in_turns_are_placed_like_gangs_one_after_the_other(announces, more):
    sizes = SIZES | {f"z{number:02}": 1 for number in range(more)}
    for order in ORDERS[:: 10 if more else 1]:
        first, second = dict.fromkeys(order)
        placed = place(*build_loop(sizes, {"o": 4, "t": 4}, announces=announces), order)
        assert placed == {first: list("aaaa"), second: list("bbbc")}, order


@settings(deadline=None)
@given(st.data())
def test_no_order_of_turns_costs_a_gang_bandwidth(data):
    sizes = {leaf: data.draw(st.integers(1, 6)) for leaf in "abcde"[: data.draw(st.integers(2, 5))]}
    pods = {name: data.draw(st.integers(2, 5)) for name in "opq"[: data.draw(st.integers(2, 3))]}
    assume(sum(pods.values()) <= sum(sizes.values()))
    order = data.draw(st.permutations([name for name, count in pods.items() for _ in range(count)]))
    in_turns = place(*build_loop(sizes, pods), order)
    alone = place(*build_loop(sizes, pods), [name for name in dict.fromkeys(order) for _ in range(pods[name])])
    values, expected = ({name: compute_bandwidth(placed[name], sizes) for name in pods} for placed in (in_turns, alone))
    assert values == expected


def begin():
    """Return a cluster in which the gang `o` has begun in the leaf that would hold either."""
    loop, gangs = build_loop(SIZES, {"o": 4, "t": 4})
    loop.place(gangs["o"][:1])
    return loop, gangs


def test_the_nodes_of_a_gang_that_has_begun_are_free_for_others_when_its_pods_are_deleted():
    loop, gangs = begin()
    assert ("a",) not in loop.decide(gangs["t"][0]).plan.leaves
    for member in gangs["o"]:
        loop.state.remove_pod(member.metadata.uid)
    assert set(loop.leaves(gangs["t"])) == {"a"}


def test_an_ended_gang_keeps_no_reservation():
    loop, gangs = begin()
    for member in gangs["o"][1:]:
        loop.state.remove_pod(member.metadata.uid)
    assert loop.decide(gangs["t"][0]).plan.slots_by_leaf[("a",)] == 3


def test_a_gang_whose_only_placed_pod_is_deleted_has_not_begun():
    loop, gangs = begin()
    loop.state.remove_pod(gangs["o"][0].metadata.uid)
    assert loop.decide(gangs["t"][0]).plan.leaves == (("a",),)


def test_a_gang_that_cannot_grow_loses_its_reservation():
    """Its pods are tried no more, such as with a volume that cannot be bound."""
    loop, gangs = begin()
    for _ in range(gang_memory._MAX_DECISIONS + 1):
        assert ("a",) not in loop.decide(gangs["t"][0]).plan.leaves
    assert ("a",) in loop.decide(gangs["t"][0]).plan.leaves


def test_the_last_free_nodes_are_reserved_for_no_gang():
    """Nothing is reserved: a pod that has no other node gets one of the gang that has begun."""
    loop, gangs = build_loop({"a": 4}, {"o": 4, "t": 1})
    loop.place(gangs["o"][:1])
    assert loop.leaves(gangs["t"]) == ["a"]


def test_a_gang_that_only_waits_keeps_its_leaf_from_others_only_if_that_costs_them_nothing():
    loop, gangs = build_loop(SIZES, {"o": 4, "t": 4})
    loop.decide(gangs["o"][0])
    assert loop.decide(gangs["t"][0]).plan.leaves == (("a",),)


def test_the_explanation_names_the_gang_to_which_nodes_are_left():
    loop, gangs = begin()
    assert texts(loop.decide(gangs["t"][0]).diagnose().why)[-1] == "nodes are left to gangs that have begun: train/o"
