"""Compares the computed split with every possible split of every row."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.placement.nodes import gpu_nic_pairs


def spreads(row):
    requested, caps = row
    return [counts for counts in itertools.product(*(range(cap + 1) for cap in caps)) if sum(counts) == requested]


def quality(gpus, rails):
    """Return (aligned, local, places used) by their definitions."""
    places = len((gpus or rails)[0]) if gpus or rails else 0
    have = [sum(row[at] for row in gpus) for at in range(places)]
    want = [sum(row[at] for row in rails) for at in range(places)]
    all_gpus, all_rails = sum(have), sum(want)
    used = sum(1 for gpu, rail in zip(have, want, strict=True) if gpu or rail)
    if not all_gpus or not all_rails:
        return True, all_rails, used
    aligned = all(abs(rail * all_gpus - gpu * all_rails) < all_gpus for gpu, rail in zip(have, want, strict=True))
    local = sum(min(rail, -(-gpu * all_rails // all_gpus)) for gpu, rail in zip(have, want, strict=True))
    return aligned, local, used


def rank_quality(split_quality):
    aligned, local, used = split_quality
    return aligned, local, -used


@st.composite
def sides(draw, places, most, rows=2):
    count = draw(places)

    def side():
        device_rows = []
        for _ in range(draw(st.integers(0, rows))):
            caps = draw(st.lists(st.integers(0, most), min_size=count, max_size=count))
            requested = draw(st.integers(1, max(1, sum(caps) + 1)))
            device_rows.append((requested, tuple(min(requested, cap) for cap in caps)))
        return tuple(device_rows)

    return side(), side(), count


def check_split(gpus, rails, places):
    best = gpu_nic_pairs.find_best_split(tuple(gpus), tuple(rails), places)
    options = [spreads(row) for row in (*gpus, *rails)]
    if not all(options):
        assert best is None
        return
    qualities = (quality(split[: len(gpus)], split[len(gpus) :]) for split in itertools.product(*options))
    expected = max(qualities, key=rank_quality)
    assert best is not None
    assert all(tuple(laid) in option for laid, option in zip(best.allocation, options, strict=True))
    chosen = quality(best.allocation[: len(gpus)], best.allocation[len(gpus) :])
    assert (best.is_aligned, best.local) == chosen[:2]
    assert chosen == expected


@given(sides(places=st.integers(1, 3), most=3))
def test_no_split_is_better_than_the_chosen_one(given_sides):
    check_split(*given_sides)


@given(sides(places=st.integers(2, 4), most=2, rows=1))
def test_the_split_is_the_best_over_four_places(given_sides):
    check_split(*given_sides)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=8, max_size=8), st.data())
def test_the_split_is_the_best_over_eight_places(free, data):
    gpus, rails = zip(*free, strict=True)
    requested = [data.draw(st.integers(1, max(1, min(4, sum(side))))) for side in (gpus, rails)]
    rows = [
        (count, tuple(min(count, cap) for cap in side)) for count, side in zip(requested, (gpus, rails), strict=True)
    ]
    check_split(rows[:1], rows[1:], 8)


@given(sides(places=st.integers(1, 3), most=40, rows=3))
def test_splits_of_hundreds_of_devices_are_valid(given_sides):
    """Only validity: shares of a GPU come in hundreds, and nothing may take each of them one by one."""
    gpus, rails, places = given_sides
    rails = tuple((min(requested, 6), tuple(min(cap, 6) for cap in caps)) for requested, caps in rails)
    best = gpu_nic_pairs.find_best_split(gpus, rails, places)
    for (requested, caps), laid in zip((*gpus, *rails), best.allocation if best else (), strict=bool(best)):
        assert sum(laid) == requested
        assert all(0 <= count <= cap for count, cap in zip(laid, caps, strict=True))


def test_accelerators_go_beside_the_rails_where_there_is_a_choice():
    """Four GPUs, one rail: three beside the rail and one elsewhere, not the other way round."""
    best = gpu_nic_pairs.find_best_split(((4, (3, 3)),), ((1, (0, 1)),), 2)
    assert best == gpu_nic_pairs.Split(is_aligned=True, local=1, allocation=([1, 3], (0, 1)))
