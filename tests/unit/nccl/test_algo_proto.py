"""NCCL_ALGO and NCCL_PROTO as NCCL reads them."""

import pytest

from railwright.fabric.nccl import algo_proto


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("Ring", {"Broadcast": {"Ring"}, "AllReduce": {"Ring"}}),
        ("Ring;AllReduce:Tree", {"Broadcast": {"Ring"}, "AllReduce": {"Tree"}}),
        (
            "allreduce:^ring",
            {"Broadcast": set(algo_proto.ALGORITHMS), "AllReduce": set(algo_proto.ALGORITHMS) - {"Ring"}},
        ),
        ("Ring,,Tree;", {"Broadcast": {"Ring", "Tree"}}),
    ],
)
def test_a_choice_leaves_these_algorithms_to_each_function(value, left):
    parsed = algo_proto.parse(value, algo_proto.ALGORITHMS)
    assert {function: parsed[function] for function in left} == left


@pytest.mark.parametrize(
    "value", ["Rings", "Ring;Tree", ";Ring", "AllReduce:", "AllToAll:Ring", "AllReduce:Ring:Tree", ":"]
)
def test_a_choice_that_stops_nccl_is_refused(value):
    with pytest.raises(algo_proto.InvalidChoiceError):
        algo_proto.parse(value, algo_proto.ALGORITHMS)
