"""Gangs placed pod by pod in small trees of domains, alone and in turns: the node of each rank, and the reasons."""

import itertools
import random
from collections import Counter

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from placing import GPU, LEAF, RESOURCES, SPINE, build_pod_with, explain, leaves, node, pod, policy
from scheduling_loop import Loop, gang
from wording import texts

from railwright.fabric.placement.gangs import gang_memory
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


# --- leaves that others wait for ---------------------------------------------------------------------------


def test_a_waiting_gang_pushes_no_pod_out_of_the_leaf_of_its_peers():
    loop = Loop([*tree(("s0", 3), ("s0", 2), ("s0", 2))])
    waiting, pods = loop.create(3, group="waiting"), loop.create(5)
    assert set(loop.decide(waiting[0]).plan.leaves) == {("leaf-0", "s0")}
    assert loop.leaves(pods) == ["leaf-0"] * 3 + ["leaf-1"] * 2


def test_a_soft_reservation_costs_other_gangs_no_spine():
    loop = Loop([*tree(("s0", 3), ("s0", 2), ("s1", 2))])
    waiting, pods = loop.create(2, group="waiting"), loop.create(5)
    loop.state.upsert_pod(pod("x", on="leaf-2-01"))
    assert set(loop.decide(waiting[0]).plan.leaves) == {("leaf-1", "s0")}
    assert loop.leaves(pods[:4]) == ["leaf-0"] * 3 + ["leaf-1"]


# --- node types --------------------------------------------------------------------------------------------


def test_the_rest_of_a_gang_gets_the_node_type_of_its_peers():
    loop = Loop([*build_mixed_nodes(["B"] * 4, ["C"] * 4, ["A"] * 4)])
    pods = loop.create(4)
    loop.state.upsert_pod(pod("g-0", group="g", on="leaf-1-00"))
    loop.state.upsert_pod(pod("x", on="leaf-1-01"))
    loop.state.upsert_pod(pod("y", on="leaf-1-02"))
    assert {loop.state.nodes[name].labels[PRODUCT] for name in loop.place(pods[1:2])} == {"C"}


def test_a_node_of_another_type_has_the_reason_why_it_is_not_used():
    loop = Loop([*build_mixed_nodes(["A", "A", "B"], ["A", "A", "B"])])
    pods = loop.create(4)
    messages = explain(loop.decide(pods[0]))["leaf-0-02"].terms["locality"][1]
    assert "the gang uses only nodes of type A" in messages
    assert "slow" not in messages


# --- spines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", [1, 2])
def test_the_tightest_spine_is_taken_so_that_the_larger_one_stays_whole(leaf):
    spines = [("a", leaf)] * (8 // leaf) + [("b", leaf)] * (4 // leaf)
    loop = Loop([*tree(*spines)], [], policy(oversubscription=[1, 7, 1]))
    small = loop.create(4, group="small")
    assert {loop.state.nodes[name].labels[SPINE] for name in loop.place(small)} == {"b"}
    large = loop.create(8, group="large")
    assert loop.decide(large[0]).plan.bandwidth == 1.0


def test_a_single_leaf_is_chosen_below_the_spine_with_the_fewest_slots():
    loop = Loop([*tree(*[("a", 2)] * 3, *[("b", 2)] * 2)])
    pods = loop.create(2)
    assert {loop.state.nodes[name].labels[SPINE] for name in loop.place(pods)} == {"b"}


@pytest.mark.parametrize(("size", "seed"), [(24, 0), (40, 0), (64, 0), (24, 1), (40, 1), (64, 1)])
def test_a_gang_uses_the_fewest_of_thirty_spines(size, seed):
    """30 spines of 8 leaves of 4 nodes, 45 % taken by chance."""
    chance = random.Random(seed)  # noqa: S311 - a test has to repeat
    nodes = [*tree(*[(f"s{spine:02}", 4) for spine in range(30) for _ in range(8)])]
    names = [node.metadata.name for node in nodes]
    loop = Loop(nodes, fill_nodes(*chance.sample(names, round(0.45 * len(names)))))
    pods = loop.create(size)
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
        for (spines, used), held in list(most.items()):
            for taken_here in range(1, min(len(order), count - used) + 1):
                at = spines + 1, used + taken_here
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


# --- NICs that peers share, and uplinks --------------------------------------------------------------------


HALF = {GPU: "8", RESOURCES[0]: "1", RESOURCES[1]: "1"}


def build_shared_nodes(*leaves):
    """Yield nodes whose rails are shared by up to a hundred pods."""
    for number, size in enumerate(leaves):
        for index in range(size):
            yield node(f"leaf-{number}-{index:02}", f"leaf-{number}", "s0", rails_each=100)


def test_peers_share_rails_that_they_use_without_requesting_them():
    loop = Loop([*build_shared_nodes(1, 1)], [], policy())
    assert len(set(loop.place(loop.create(2, gpus=4, rails=0)))) == 2


def test_reasons_name_the_uplinks_and_their_bandwidth():
    busy = [f"leaf-{leaf}-{index:02}" for leaf in range(2) for index in range(1, 4)]
    loop = Loop([*build_shared_nodes(4, 4)], fill_nodes(*busy), policy(oversubscription=[28]))
    half = loop.create(2, build_pod_with, requests=HALF)
    messages = " ".join(texts(loop.diagnose(half[0]).why))
    assert "(4 nodes, 28:1, including the uplinks of rails that the gang does not use) carry 0.29" in messages


def test_the_reason_for_less_bandwidth_names_nics_that_peers_would_share():
    loop = Loop([*build_shared_nodes(1)], [], policy())
    pods = loop.create(2, gpus=4)
    assert "too few NICs for 2 pods of the gang on 1 node" in " ".join(texts(loop.diagnose(pods[0]).why))


def test_fabrics_with_a_switch_for_every_rail_have_uplinks_for_every_rail():
    assert presets.has_own_uplinks(fabric(domains=["example.com/leaf-{rail}", SPINE]).placement)
    assert not presets.has_own_uplinks(fabric().placement)


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
    assert first.gang.unplaced == 5
    assert "all 5 pods" in explain(first)["leaf-1-00"].terms["locality"][1]
    placed = loop.place(pods)
    assert {loop.leaf_of(name) for name in placed} == {"leaf-1"}
    assert len(set(placed)) == 3


def test_small_pods_with_unshared_rails_need_a_node_each():
    loop = Loop([*tree(("s0", 4), ("s0", 3))])
    pods = [pod(f"g-{rank}", group="g", gpus=gpus) for rank, gpus in enumerate([8, 8, 2, 2])]
    loop.submit(pods)
    assert loop.leaves(pods) == ["leaf-0"] * 4


# --- gangs whose pods come in turns: the first has the prior right to its leaves ------------------------------


SIZES = {"a": 4, "b": 3, "c": 2}  # nodes of each leaf
ORDERS = sorted(set(itertools.permutations("ooootttt")))


def build_loop(sizes, pods, *, ratio=7.0, announces=False):
    """Return a cluster of these leaves, and the gangs of `pods`, which have so many pods, by name."""
    given_policy = policy(domains=[LEAF], oversubscription=[ratio])
    loop = Loop(leaves(**sizes), [], given_policy, announces=announces)
    return loop, {name: loop.create(count, group=name) for name, count in pods.items()}


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


@pytest.mark.parametrize(
    ("deleted", "slots"),
    [(slice(None), 4), (slice(1, None), 3), (slice(1), 4)],
    ids=["all its pods", "those that wait", "its only placed pod"],
)
def test_a_gang_that_has_begun_loses_its_nodes_with_its_pods(deleted, slots):
    loop, gangs = begin()
    assert ("a",) not in loop.decide(gangs["t"][0]).plan.leaves
    for member in gangs["o"][deleted]:
        loop.state.remove_pod(member.metadata.uid)
    plan = loop.decide(gangs["t"][0]).plan
    assert plan.slots_by_leaf[("a",)] == slots
    assert (plan.leaves == (("a",),)) == (slots == 4)


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
    assert texts(loop.diagnose(gangs["t"][0]).why)[-1] == "nodes are left to gangs that have begun: train/o"
