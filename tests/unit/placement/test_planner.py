"""The planner compared with every choice of nodes and leaves, by the definition of bandwidth."""

import itertools

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.gangs import leaf_selection, planner
from railwright.fabric.placement.nodes import node_evaluation

RAILS = 3
LEAVES = (("l0", "s0"), ("l1", "s0"), ("l2", "s1"), ("l3", "s1"), ("l4", "s2"))


def build_class(shares=(1 / 3,) * RAILS, alignments=(1.0,), shape=""):
    """Return a class of nodes with all that a plan reads of it, for pods that have NICs of their own."""
    facts = node_evaluation.NodeFacts(
        eligible=True, shape=shape, fits_by_other_resources=len(alignments), devices=(), broken=()
    )
    return node_evaluation.NodeClass(
        facts=facts,
        demand=None,
        pools=(),
        usage={},
        numa_assignments=(),
        slot_numa_factors=alignments,
        shares=(shares,) * (len(alignments) + 2),
        rails=sum(1 << bit for bit, share in enumerate(shares) if share),
        bandwidths=[alignment * sum(shares) for alignment in alignments],
        is_idle=True,
        is_full=False,
        has_unsplit_slot=True,
        fill_priority=1,
    )


GRADES = st.builds(
    build_class,
    st.tuples(*[st.sampled_from([1 / 3, 1 / 6, 0.0])] * RAILS),
    st.sampled_from([(1.0,), (bandwidth.MISALIGNED,), (1.0, bandwidth.MISALIGNED), ()]),
)
NODES = st.lists(st.tuples(st.sampled_from(LEAVES), GRADES), min_size=1, max_size=8)
RATIOS = st.sampled_from([(), (1.0, 7.0), (7.0,), (2.0, 3.0)])


def build_capacity(nodes, ratios=(), busy=(), absent=()):
    """Return nodes of (leaf, grade); `busy` leaves hold further nodes without room, `absent` grades have no nodes."""
    grades = list(dict.fromkeys((*absent, *(grade for _, grade in nodes))))
    leaves, sizes = {}, {}
    for leaf, grade in nodes:
        counts = leaves.setdefault(leaf, {})
        counts[grade] = counts.get(grade, 0) + 1
    for leaf in (*(leaf for leaf, _ in nodes), *busy):
        for level in range(len(leaf)):
            sizes[leaf[level:]] = sizes.get(leaf[level:], 0) + 1
    return planner.GangCapacity(grades, leaves, bandwidth.Uplinks(sizes, ratios))


def compute_bandwidth(members, ratios, sizes):
    """Return the modelled bandwidth of members of (leaf, grade, alignment)."""
    values = [alignment * sum(capacity.shares[1]) for _, capacity, alignment in members]
    for level, ratio in enumerate(ratios):
        domains = {leaf[level:] for leaf, _, _ in members}
        if len(domains) > 1:
            values += [min(1.0, sizes[domain] / ratio) for domain in domains]
    return min(values)


def slots(nodes):
    return [(leaf, capacity, alignment) for leaf, capacity in nodes for alignment in capacity.slot_numa_factors]


@given(NODES, st.integers(1, 5), RATIOS)
def test_the_planned_nodes_have_the_most_bandwidth_on_the_fewest_leaves(nodes, remaining, ratios):
    capacity = build_capacity(nodes, ratios)
    plan = planner.plan_gang(remaining, capacity)
    choices = [
        (compute_bandwidth(some, ratios, capacity.uplinks.domain_sizes), -len({leaf for leaf, _, _ in some}))
        for some in itertools.combinations(slots(nodes), remaining)
    ]
    if not choices:
        assert not plan.is_complete
        return
    value, leaves = max(choices, key=lambda choice: (round(choice[0], 6), choice[1]))
    assert plan.is_complete
    assert abs(plan.bandwidth - value) < 1e-6
    assert len(plan.leaves) == -leaves
    assert planner.count_min_leaves(remaining, capacity) == min(-count for _, count in choices), "at any bandwidth"
    assert sum(plan.slots_by_leaf[leaf] for leaf in plan.leaves) >= remaining


@given(NODES, st.integers(2, 3), st.integers(1, 2), RATIOS)
def test_the_planned_segments_have_the_most_bandwidth_on_the_fewest_leaves(nodes, size, count, ratios):
    capacity = msgspec.structs.replace(build_capacity(nodes, ratios), segment=size)
    plan = planner.plan_gang(size * count, capacity)
    choices = []
    for some in itertools.combinations(slots(nodes), size * count):
        leaves_of_some = [leaf for leaf, _, _ in some]
        if all(leaves_of_some.count(leaf) % size == 0 for leaf in leaves_of_some):
            value = compute_bandwidth(some, ratios, capacity.uplinks.domain_sizes)
            choices.append((round(value, 6), -len(set(leaves_of_some))))
    if not choices:
        assert not plan.is_complete
        return
    value, fewest = max(choices)
    assert plan.is_complete
    assert abs(plan.bandwidth - value) < 1e-5
    assert len(plan.leaves) == -fewest


def test_nodes_of_one_shape_are_preferred_to_fewer_leaves():
    old, new = build_class(shape="a100"), build_class(shape="h100")
    nodes = [*[(LEAVES[0], old)] * 2, *[(LEAVES[0], new)] * 2, *[(LEAVES[1], new)] * 2]
    plan = planner.plan_gang(4, build_capacity(nodes))
    assert set(plan.leaves) == {LEAVES[0], LEAVES[1]}
    assert set(plan.slots_by_leaf.values()) == {2}


def test_nodes_without_a_leaf_label_are_used_last():
    nodes = [((), build_class())] * 5 + [(LEAVES[0], build_class())] * 3
    plan = planner.plan_gang(5, build_capacity(nodes))
    assert plan.leaves == (LEAVES[0], ())
    assert plan.is_complete


# --- the chosen leaves against every other choice -------------------------------------------------------------


ROOMS = st.dictionaries(
    st.tuples(st.sampled_from(["l0", "l1", "l2", "l3"]), st.sampled_from(["s0", "s1", "s2"])),
    st.integers(1, 6),
    min_size=1,
)


def build_problem(remaining, slots, used=(), carries=lambda *_: True):
    return leaf_selection.LeafRequest(
        remaining=remaining,
        slots=slots,
        peer_leaves=tuple(used),
        select_fast_domains=lambda domains, level: {domain for domain in domains if carries(domain, level)},
    )


def list_choices(slots, remaining, carries=lambda *_: True):
    """Yield all sets of leaves that hold the gang and whose crossed uplinks reach the bandwidth."""
    for count in range(1, len(slots) + 1):
        for some in itertools.combinations(sorted(slots), count):
            if sum(slots[leaf] for leaf in some) < remaining:
                continue
            spines = {leaf[1:] for leaf in some}
            crossed = [(leaf, 0) for leaf in some] if count > 1 else []
            crossed += [(spine, 1) for spine in spines] if len(spines) > 1 else []
            if all(carries(domain, level) for domain, level in crossed):
                yield some


@given(ROOMS, st.integers(1, 20), st.sets(st.sampled_from(["l0", "l1", "l2", "l3", "s0", "s1", "s2"])))
def test_the_chosen_leaves_are_the_fewest_then_in_the_fewest_spines_then_the_tightest(slots, remaining, weak):
    def carries(domain, level):
        return domain[0] not in weak

    choices = list(list_choices(slots, remaining, carries))
    choice = leaf_selection.choose_leaves(build_problem(remaining, slots, carries=carries))
    assert build_problem(remaining, slots, carries=carries).fits == bool(choices)
    if not choices:
        assert choice is None
        return
    costs = [(len(some), len({leaf[1] for leaf in some}), sum(slots[leaf] for leaf in some)) for some in choices]
    chosen = choice.leaves
    assert (len(chosen), len({leaf[1] for leaf in chosen}), sum(slots[leaf] for leaf in chosen)) == min(costs)


@given(ROOMS, st.integers(1, 20), st.data())
def test_leaves_with_placed_pods_of_the_gang_are_filled_first(slots, remaining, data):
    used = data.draw(st.lists(st.sampled_from(sorted(slots)), unique=True))
    choice = leaf_selection.choose_leaves(build_problem(remaining, slots, used))
    if choice is None:
        assert sum(slots.values()) < remaining
        return
    common = min(len(used), len(choice.leaves))
    assert list(choice.leaves[:common]) == used[:common]


def test_a_gang_that_outgrows_its_leaf_gets_another_leaf_below_the_same_spine():
    slots = {("a", "s0"): 1, ("b", "s1"): 4, ("c", "s0"): 5}
    assert leaf_selection.choose_leaves(build_problem(4, slots, [("a", "s0")])).leaves == (("a", "s0"), ("c", "s0"))


def test_leaves_without_a_spine_label_are_not_treated_as_neighbours():
    slots = {("a", ""): 4, ("b", ""): 4, ("c", "s"): 4, ("d", "s"): 4}
    assert set(leaf_selection.choose_leaves(build_problem(8, slots)).leaves) == {("c", "s"), ("d", "s")}


def test_a_gang_over_thousands_of_small_leaves_is_planned_in_one_pass():
    compared = 0

    class Room(int):
        def __ge__(self, other):
            nonlocal compared
            compared += 1
            return int(self) >= int(other)

    slots = {(f"l{i}", "s"): Room(1) for i in range(2000)}
    choice = leaf_selection.choose_leaves(build_problem(500, slots))
    assert len(choice.leaves) == 500
    assert compared < 10 * len(slots)
