"""The plan of a gang's leaves against every other choice."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from fabric.placement import gangs

ROOMS = st.dictionaries(
    st.tuples(st.sampled_from(["l0", "l1", "l2", "l3"]), st.sampled_from(["s0", "s1"])),
    st.integers(0, 6),
    min_size=1,
)


@given(ROOMS, st.integers(1, 20))
def test_the_plan_holds_the_gang_whenever_the_cluster_does(rooms, size):
    chosen = gangs.plan(size, rooms, ())
    assert len(set(chosen)) == len(chosen)
    assert all(rooms[leaf] > 0 for leaf in chosen)
    held = sum(rooms[leaf] for leaf in chosen)
    assert held >= min(size, sum(rooms.values()))


@given(ROOMS, st.integers(1, 20))
def test_no_fewer_leaves_under_the_same_common_domain_would_do(rooms, size):
    chosen = gangs.plan(size, rooms, ())
    if sum(rooms.values()) < size:
        return
    same_spine = len({leaf[1] for leaf in chosen}) == 1
    pool = [leaf for leaf in rooms if not same_spine or leaf[1] == chosen[0][1]]
    for count in range(1, len(chosen)):
        assert all(sum(rooms[leaf] for leaf in some) < size for some in combinations(pool, count))


@given(ROOMS, st.integers(1, 20))
def test_one_spine_is_enough_whenever_one_could_hold_it(rooms, size):
    by_spine = {s: sum(room for leaf, room in rooms.items() if leaf[1] == s) for s in ("s0", "s1")}
    if max(by_spine.values()) >= size:
        assert len({leaf[1] for leaf in gangs.plan(size, rooms, ())}) == 1


@given(ROOMS, st.integers(1, 20), st.data())
def test_mates_leaves_with_room_come_first_in_the_order_given(rooms, size, data):
    mates = data.draw(st.lists(st.sampled_from(sorted(rooms)), unique=True))
    chosen = gangs.plan(size, rooms, mates)
    with_room = [leaf for leaf in mates if rooms[leaf] > 0]
    common = min(len(with_room), len(chosen))
    assert list(chosen[:common]) == with_room[:common]


def test_the_tightest_sufficient_leaf_wins_over_larger_ones():
    rooms = {("a", "s"): 12, ("b", "s"): 8, ("c", "s"): 9, ("d", "s"): 7}
    assert gangs.plan(8, rooms, ()) == (("b", "s"),)


def test_what_spills_over_stays_under_the_mates_spine():
    rooms = {("a", "s0"): 1, ("b", "s1"): 4, ("c", "s0"): 5}
    assert gangs.plan(4, rooms, [("a", "s0")]) == (("a", "s0"), ("c", "s0"))


def test_nodes_without_a_leaf_label_are_the_last_resort():
    rooms = {(): 50, ("a", "s"): 3}
    assert gangs.plan(5, rooms, ()) == (("a", "s"), ())


def test_a_gang_over_thousands_of_small_leaves_is_planned_in_one_pass():
    compared = 0

    class Room(int):
        def __ge__(self, other):
            nonlocal compared
            compared += 1
            return int(self) >= int(other)

    rooms = {(f"l{i}", "s"): Room(1) for i in range(2000)}
    assert len(gangs.plan(500, rooms, ())) == 500
    assert compared < 10 * len(rooms)
