"""The result of a complete gang: leaves and modelled bandwidth compared with the best possible ones."""

import msgspec
import pytest
from placing import RESOURCES, build_cluster, build_request, create_assumed_pods, node, pod
from wording import text, texts

from railwright.fabric.placement import bandwidth, engine
from railwright.fabric.placement.explain import placement_result

LEAF_A, LEAF_B = ("a", "s"), ("b", "s")
SIZES = {LEAF_A: 4, LEAF_B: 1, ("s",): 5}
WHOLE = placement_result.PlannedPlacement(leaves=(LEAF_A,), bandwidth=1.0, upper_bound=1.0, is_exact=True, members=4)


def stands(**changed):
    """Return the evaluation of a node for a gang's member."""
    state = build_cluster([node("n", "a", **changed)], (), {"train/gang": 4})
    decision = engine.PlacementEngine(state, create_assumed_pods()).score(
        build_request(pod("w-0", group="gang"), ["n"])
    )
    return decision.rows[0].evaluation


def places(*where, **stood):
    return [
        placement_result.PlacedPod(f"w-{i}", f"n-{i}", leaf, stood.get(f"n{i}", stands()))
        for i, leaf in enumerate(where)
    ]


def test_a_gang_on_the_planned_leaf_is_compact():
    placement = placement_result.assess(places(*[LEAF_A] * 4), WHOLE, bandwidth.Uplinks(SIZES, [7]))
    assert placement_result.classify(placement, WHOLE) == placement_result.COMPACT
    assert (placement.bandwidth, placement.causes, placement.outside_plan) == (1.0, (), ())


def test_a_member_on_another_leaf_makes_it_spread_and_is_named():
    placement = placement_result.assess(places(LEAF_A, LEAF_A, LEAF_A, LEAF_B), WHOLE, bandwidth.Uplinks(SIZES, [7]))
    assert placement_result.classify(placement, WHOLE) == placement_result.SPREAD
    assert text(placement_result.describe(placement, WHOLE)) == (
        "4 pods run on 2 leaves (a in s 3, b in s 1); 1 was the minimum; modelled bandwidth 0.14, best possible 1.00: "
        "the uplinks of b in s (1 node, 7:1) carry 0.14; not on the planned leaves: w-3 on n-3 (b in s)"
    )


def test_ranks_out_of_order_cross_more_often():
    promise = msgspec.structs.replace(WHOLE, leaves=(LEAF_A, LEAF_B))
    sizes = SIZES | {LEAF_B: 4}
    in_order = placement_result.assess(places(LEAF_A, LEAF_A, LEAF_B, LEAF_B), promise, bandwidth.Uplinks(sizes, [7]))
    mixed = placement_result.assess(places(LEAF_A, LEAF_B, LEAF_A, LEAF_B), promise, bandwidth.Uplinks(sizes, [7]))
    assert in_order.bandwidth == pytest.approx(4 / 7)
    assert mixed.bandwidth == pytest.approx(2 / 7)
    assert "carry 0.29 for each of 2 crossings" in text(mixed.causes[0])


def test_a_degraded_rail_of_one_member_slows_all():
    bad = stands(capacity={RESOURCES[2]: "2"})
    placement = placement_result.assess(places(*[LEAF_A] * 4, n2=bad), WHOLE, bandwidth.Uplinks(SIZES, [1]))
    assert placement_result.classify(placement, WHOLE) == placement_result.DEGRADED
    assert placement.bandwidth == pytest.approx(0.875)
    assert texts(placement.causes) == ("n-2: rail2 degraded",)


def test_a_rail_that_one_member_lacks_is_lost_to_all():
    bad = stands(rails_each=dict.fromkeys(RESOURCES[:3], 1))
    lacking = msgspec.structs.replace(bad, capacity=msgspec.structs.replace(bad.capacity, slot_numa_factors=(1.0,)))
    placement = placement_result.assess(places(*[LEAF_A] * 4, n2=lacking), WHOLE, bandwidth.Uplinks(SIZES, [1]))
    assert placement.bandwidth == pytest.approx(0.75)
    assert "n-2: rail3 dead or absent" in texts(placement.causes)


def test_members_that_lack_different_rails_have_only_the_others_in_common():
    def without(*lost):
        bad = stands(rails_each={item: 1 for item in RESOURCES if item not in lost})
        return msgspec.structs.replace(bad, capacity=msgspec.structs.replace(bad.capacity, slot_numa_factors=(1.0,)))

    lacking = {"n0": without(RESOURCES[0]), "n1": without(RESOURCES[3])}
    assert placement_result.assess(
        places(*[LEAF_A] * 4, **lacking), WHOLE, bandwidth.Uplinks(SIZES, [1])
    ).bandwidth == pytest.approx(0.5)


def test_a_node_without_a_stored_evaluation_is_not_named_as_the_cause():
    placement = placement_result.assess(places(*[LEAF_A] * 2, n1=None), WHOLE, bandwidth.Uplinks(SIZES, [1]))
    assert placement.bandwidth == 1.0
