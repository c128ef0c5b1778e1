"""NCCL_ALGO and NCCL_PROTO as NCCL reads them."""

import pytest

from railwright.fabric.nccl import lists


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("Ring", {"Broadcast": {"Ring"}, "AllReduce": {"Ring"}}),
        ("Ring;AllReduce:Tree", {"Broadcast": {"Ring"}, "AllReduce": {"Tree"}}),
        (
            "allreduce:^ring",
            {"Broadcast": set(lists.ALGORITHMS), "AllReduce": set(lists.ALGORITHMS) - {"Ring"}},
        ),
        ("Ring,,Tree;", {"Broadcast": {"Ring", "Tree"}}),
    ],
)
def test_a_choice_leaves_these_algorithms_to_each_function(value, left):
    parsed = lists.parse_choice(value, lists.ALGORITHMS)
    assert {function: parsed[function] for function in left} == left


@pytest.mark.parametrize(
    "value", ["Rings", "Ring;Tree", ";Ring", "AllReduce:", "AllToAll:Ring", "AllReduce:Ring:Tree", ":"]
)
def test_a_choice_that_stops_nccl_is_refused(value):
    with pytest.raises(lists.InvalidChoiceError):
        lists.parse_choice(value, lists.ALGORITHMS)
