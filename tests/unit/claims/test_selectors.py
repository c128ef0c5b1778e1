"""Results are shared only by devices whose attributes that the expression reads are equal."""

import pytest
import selecting

from railwright.fabric.claims import evaluations, selectors
from railwright.fabric.claims.comparisons import Match

NIC = "dra.net"


def device(*, bandwidth: str = "400G", **attributes) -> dict:
    types = {bool: "bool", int: "int", str: "string"}
    described = {f"{NIC}/{name}": {types[type(value)]: value} for name, value in attributes.items()}
    return {"driver": NIC, "attributes": described, "capacity": {"bandwidth": {"value": bandwidth}}}


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["dra.net"].numaNode + 0 == 0',
        'device.attributes["dra.net"].ifName.matches("^eth1$")',
        '"dra.net" in device.attributes && device.attributes["dra.net"]["numaNode"] + 0 == 0',  # reads by other means
        'cel.bind(nic, device.attributes["dra.net"], nic.numaNode == 0)',
        'device.capacity["dra.net"].bandwidth.compareTo(quantity("400G")) == 0',
    ],
)
def test_results_are_shared_by_devices_equal_in_what_is_read(expression):
    results = evaluations.Evaluations()
    twins = [device(numaNode=0, ifName="eth1", mac="00:10"), device(numaNode=0, ifName="eth1", mac="00:11")]
    other = device(numaNode=1, ifName="eth2", mac="00:10", bandwidth="200G")
    matches = []
    for tree in (*twins, other):
        results.evaluate(expression, selecting.offer(tree))
        selecting.answer_here(results)
        matches.append(results.evaluate(expression, selecting.offer(tree)).match)
    assert matches == [Match.YES, Match.YES, Match.NO]


def test_devices_that_differ_in_unread_attributes_are_evaluated_once():
    results = evaluations.Evaluations()
    for number in range(8):
        nic = selecting.offer(device(numaNode=1, mac=f"00:{number}"))
        assert results.evaluate('device.attributes["dra.net"].numaNode + 1 == 2', nic) == evaluations.NOT_EVALUATED
    assert len(results.list_questions()) == results.count_pending == 1
    selecting.answer_here(results)
    assert results.count_pending == 0


def test_false_and_zero_are_different_values():
    results = evaluations.Evaluations()
    expression = 'device.attributes["dra.net"].rdma in [false] || 1 + 1 == 3'
    for value in (0, False):
        results.evaluate(expression, selecting.offer(device(rdma=value)))
    selecting.answer_here(results)
    matches = [results.evaluate(expression, selecting.offer(device(rdma=value))).match for value in (0, False)]
    assert matches == [Match.NO, Match.YES]


def test_unused_results_are_forgotten():
    results, nic = evaluations.Evaluations(), selecting.offer(device(numaNode=1))
    used, gone = ('device.attributes["dra.net"].numaNode + 1 == ' + value for value in "23")
    for expression in (used, gone):
        results.evaluate(expression, nic)
    selecting.answer_here(results)
    results.retain([used])
    assert [results.evaluate(expression, nic).is_pending for expression in (used, gone)] == [False, True]


def test_the_number_of_results_is_limited(monkeypatch):
    monkeypatch.setattr(evaluations, "_MAX_RESULTS", 3)
    results = evaluations.Evaluations()
    for number in range(5):
        results.evaluate('device.attributes["dra.net"].mac.matches("a")', selecting.offer(device(mac=str(number))))
    assert results.count_pending == 3
    result = results.evaluate('device.attributes["dra.net"].mac.matches("a")', selecting.offer(device(mac="9")))
    assert (result.match, result.is_pending) == (Match.UNKNOWN, False)


@pytest.mark.parametrize(
    ("expression", "unguarded"),
    [
        ('device.attributes["dra.net"].rdma == true', ("dra.net/rdma",)),
        ('device.attributes["dra.net"]["rdmaDevice"] == "mlx5_0"', ("dra.net/rdmaDevice",)),
        ('has(device.attributes["dra.net"].rdma) && device.attributes["dra.net"].rdma', ()),
        ("has(device.attributes['dra.net'].rdma) && device.attributes[\"dra.net\"]['rdma']", ()),
        ('"rdma" in device.attributes["dra.net"] && device.attributes["dra.net"].rdma', ()),
        ('device.attributes["dra.net"].?rdma.orValue(false)', ()),
        ('device.driver == "dra.net"', ()),
    ],
)
def test_attributes_that_an_expression_reads_without_a_test_are_listed(expression, unguarded):
    assert selectors.list_unguarded(expression) == unguarded
