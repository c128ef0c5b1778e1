"""Offers of the nodes of a Volcano request: equal ones are read once, malformed ones are rejected."""

import json

import pytest

from extender import decoding, volcano_wire
from railwright.serving import turns


def nodes(*given: dict) -> list[volcano_wire.NodeAmounts]:
    body = json.dumps({"task": {"UID": "u"}, "nodes": list(given)}).encode()
    return list(turns.complete(volcano_wire.read_prioritize(body))[1].values())


def test_amounts_of_nodes_are_converted_to_milli_units():
    idle = {"MilliCPU": 190000, "Memory": 2048, "ScalarResources": {"nvidia.com/gpu": 8000, "pods": 98}, "New": None}
    (node,) = nodes({"Name": "a", "Idle": idle})
    offer = volcano_wire.decode_offer(node)
    assert offer.idle == {"cpu": 190000, "memory": 2048000, "nvidia.com/gpu": 8000, "pods": 98000}
    assert offer.future_idle is None


def test_future_idle_adds_released_and_subtracts_pipelined_resources():
    node = {"Name": "a", "Idle": {"ScalarResources": {"r": 1000}}, "Releasing": {"ScalarResources": {"r": 2000}}}
    (decoded,) = nodes(node | {"Pipelined": {"ScalarResources": {"r": 500}}})
    assert volcano_wire.decode_offer(decoded).future_idle["r"] == 2500


def test_only_nodes_with_equal_json_share_one_offer():
    one, two, three = nodes(
        *({"Name": name, "Idle": {"MilliCPU": cpu}} for name, cpu in (("a", 1), ("b", 1), ("c", 2)))
    )
    assert volcano_wire.decode_offer(one) is volcano_wire.decode_offer(two)
    assert volcano_wire.decode_offer(one) != volcano_wire.decode_offer(three)


@pytest.mark.parametrize("absent", [{}, {"Idle": None}])
def test_a_node_without_idle_makes_no_offer(absent):
    (node,) = nodes({"Name": "a", **absent, "Releasing": {"ScalarResources": {"r": 1}}})
    assert volcano_wire.decode_offer(node) is None


@pytest.mark.parametrize("wrong", ["much", [], {"MilliCPU": "1"}, {"ScalarResources": {"r": "1"}}])
@pytest.mark.parametrize("field", ["Idle", "Releasing", "Pipelined"])
def test_a_value_of_the_wrong_type_in_any_field_is_refused(field, wrong):
    (node,) = nodes({"Name": "a", "Idle": {"MilliCPU": 1}} | {field: wrong})
    with pytest.raises(decoding.MalformedError, match="not the expected JSON"):
        volcano_wire.decode_offer(node)
