"""The rails of a gang: those on which the nodes have room for the most pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.claims import claim_templates, pairing, rail_choice


def choose(count, nodes, *, waiting=None, gpus=8, devices_per_rail=1, last_first=False):
    rails = len(next(iter(nodes), (0, 0, 0, 0)))
    hardware = claim_templates.Hardware(
        device_class="dranet",
        driver="dra.net",
        node=pairing.Node(accelerators=gpus, rails=rails),
        devices_per_rail=devices_per_rail,
    )
    free = rail_choice.FreeDevices(nodes, waiting or {})
    return rail_choice.choose_rails(hardware, count, free, last_first=last_first)


@pytest.mark.parametrize(
    ("count", "nodes", "chosen"),
    [
        (2, {(1, 1, 1, 1): 4}, (0, 1)),
        (2, {}, (0, 1)),
        (2, {(0, 0, 1, 1): 3, (1, 1, 1, 1): 1}, (2, 3)),
        (2, {(0, 1, 1, 1): 1, (1, 1, 0, 1): 1, (1, 1, 1, 1): 14}, (1, 3)),
        # rail0 and rail2 are free on as many nodes as others, and together on more
        (2, {(1, 0, 1, 0): 2, (0, 1, 0, 1): 1, (1, 0, 0, 1): 1, (0, 1, 1, 0): 1}, (0, 2)),
        (1, {(2, 4, 3, 4): 1}, (1,)),
    ],
)
def test_the_rails_with_room_for_the_most_pods_are_chosen(count, nodes, chosen):
    assert choose(count, nodes) == chosen


def test_the_last_rails_are_chosen_if_asked_for_and_as_free_as_others():
    assert choose(2, {(1, 1, 1, 1): 4}, last_first=True) == (2, 3)
    assert choose(2, {(1, 1, 0, 1): 1, (1, 1, 1, 1): 4}, last_first=True) == (1, 3)


def test_the_rails_of_a_group_count_together():
    """EKS p5 with two groups of four: each rail of the first is free on 15 nodes of 16, all four only on 12."""
    held = [tuple(int(rail != other) for rail in range(8)) for other in range(4)]
    nodes = {**dict.fromkeys(held, 1), (1, 1, 1, 1, 0, 1, 1, 1): 3, (1,) * 8: 9}
    assert choose(4, nodes, gpus=2) == (4, 5, 6, 7)


def test_pods_that_wait_take_room():
    assert choose(2, {(1, 1, 1, 1): 4}, waiting={(0, 1): 1}) == (2, 3)
    assert choose(2, {(1, 1, 1, 1): 4}, waiting={(0, 1): 3, (2, 3): 2}) == (2, 3)


def test_a_rail_has_room_only_if_all_devices_of_a_pod_are_free():
    assert choose(1, {(3, 1, 4, 2): 2}, devices_per_rail=4) == (2,)


@given(
    st.integers(1, 4),
    st.dictionaries(st.tuples(*[st.integers(0, 2)] * 4), st.integers(1, 5), max_size=6),
)
def test_no_single_rail_has_more_room_than_the_chosen_one(count, nodes):
    chosen = choose(count, nodes)
    assert (len(chosen), list(chosen)) == (count, sorted(set(chosen)))
    free = [sum(counts[rail] * number for counts, number in nodes.items()) for rail in range(4)]
    if count == 1:
        assert free[chosen[0]] == max(free)
    if count == 4:
        assert chosen == (0, 1, 2, 3)
