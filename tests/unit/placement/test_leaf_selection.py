"""Compares the chosen leaves of a gang with every other choice."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.placement.gangs import leaf_selection

ROOMS = st.dictionaries(
    st.tuples(st.sampled_from(["l0", "l1", "l2", "l3"]), st.sampled_from(["s0", "s1", "s2"])),
    st.integers(1, 6),
    min_size=1,
)


def build_problem(remaining, slots, used=(), started=None, carries=lambda *_: True):
    return leaf_selection.LeafProblem(
        remaining=remaining,
        slots=slots,
        unsplit_slots=slots,
        slots_on_used_nodes=started or {},
        peer_leaves=tuple(used),
        uplink_carries=carries,
    )


def every_choice(slots, remaining, carries=lambda *_: True):
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
def test_the_choice_has_the_fewest_leaves_then_spines_then_unused_slots(slots, remaining, weak):
    def carries(domain, level):
        return domain[0] not in weak

    choices = list(every_choice(slots, remaining, carries))
    choice = leaf_selection.choose_leaves(build_problem(remaining, slots, carries=carries))
    assert leaf_selection.fits(build_problem(remaining, slots, carries=carries)) == bool(choices)
    if not choices:
        assert choice is None
        return
    costs = [(len(some), len({leaf[1] for leaf in some}), sum(slots[leaf] for leaf in some)) for some in choices]
    chosen = choice.leaves
    assert (len(chosen), len({leaf[1] for leaf in chosen}), sum(slots[leaf] for leaf in chosen)) == min(costs)
    assert choice.is_exact


@given(ROOMS, st.integers(1, 20), st.data())
def test_peers_leaves_with_slots_come_first_in_the_given_order(slots, remaining, data):
    used = data.draw(st.lists(st.sampled_from(sorted(slots)), unique=True))
    choice = leaf_selection.choose_leaves(build_problem(remaining, slots, used))
    if choice is None:
        assert sum(slots.values()) < remaining
        return
    common = min(len(used), len(choice.leaves))
    assert list(choice.leaves[:common]) == used[:common]


def test_further_leaves_are_below_the_peers_spine():
    slots = {("a", "s0"): 1, ("b", "s1"): 4, ("c", "s0"): 5}
    assert leaf_selection.choose_leaves(build_problem(4, slots, [("a", "s0")])).leaves == (("a", "s0"), ("c", "s0"))


def test_leaves_without_a_spine_label_do_not_count_as_neighbours():
    slots = {("a", ""): 4, ("b", ""): 4, ("c", "s"): 4, ("d", "s"): 4}
    assert set(leaf_selection.choose_leaves(build_problem(8, slots)).leaves) == {("c", "s"), ("d", "s")}


def test_a_pod_fills_a_partly_used_node_before_a_tighter_leaf_of_idle_nodes():
    slots = {("a", "s"): 2, ("b", "s"): 7}
    assert leaf_selection.choose_leaves(build_problem(1, slots, started={("b", "s"): 1})).leaves == (("b", "s"),)


def test_a_gang_over_thousands_of_small_leaves_is_planned_in_one_pass():
    compared = 0

    class Room(int):
        def __ge__(self, other):
            nonlocal compared
            compared += 1
            return int(self) >= int(other)

    slots = {(f"l{i}", "s"): Room(1) for i in range(2000)}
    assert len(leaf_selection.choose_leaves(build_problem(500, slots)).leaves) == 500
    assert compared < 10 * len(slots)


def test_of_equal_leaves_the_one_without_numa_splits_wins():
    slots = {("a", "s"): 4, ("b", "s"): 5}
    problem = leaf_selection.LeafProblem(
        remaining=4,
        slots=slots,
        unsplit_slots={("a", "s"): 3, ("b", "s"): 5},
        slots_on_used_nodes={},
        peer_leaves=(),
        uplink_carries=None,
    )
    assert leaf_selection.choose_leaves(problem).leaves == (("b", "s"),)
