"""Devices of a class or request that is not understood are unknown: no reason to refuse a node, and reported."""

import devices
import pytest
import selecting
from claimed import RAIL, build_claim, policy

from railwright.fabric.claims import claim_index, resource_names
from railwright.fabric.claims.comparisons import Match
from railwright.fabric.policy import claimed_rails

CIDR = 'device.driver == "dra.net" && cidr("10.0.0.0/8").containsIP("10.1.2.3")'
LATER = 'device.driver == "dra.net" && device.attributes["dra.net"].rdmaDevice.matches("^rdmap")'


def offer(*classes):
    return devices.build_inventory("n1", classes=classes)


def count(known, name):
    return known.count_devices("n1").allocatable.get(name, 0) // 1000


def test_an_unknown_class_may_select_all_devices_of_its_driver():
    known = offer(devices.build_class("nics", CIDR, extended_resource="example.com/nic"))
    selecting.settle(known)
    assert count(known, "example.com/nic") == 5
    [row] = known.list_unknown()
    assert (row.kind, row.metadata.name, row.match) == ("DeviceClass", "nics", Match.UNKNOWN)
    assert (row.expression, "cidr" in row.cause) == (CIDR, True)
    assert row.device.startswith("dra.net/")


def test_a_pending_class_counts_all_devices_at_first():
    known = offer(devices.build_class("nics", LATER, extended_resource="example.com/nic"))
    assert count(known, "example.com/nic") == 5
    assert known.names.evaluations.count_pending
    assert known.answer({}) == {"n1"}
    assert count(known, "example.com/nic") == 5
    selecting.settle(known)
    assert (count(known, "example.com/nic"), known.names.evaluations.count_pending) == (4, 0)
    [row] = known.list_unknown()
    assert (row.match, row.cause) == (Match.FAILS, 'the device has no "rdmaDevice"')


def test_a_class_that_is_understood_is_not_reported():
    known = offer(devices.NIC_CLASS, devices.GPU_CLASS)
    selecting.settle(known)
    assert count(known, "deviceclass.resource.kubernetes.io/" + devices.NIC_CLASS["metadata"]["name"])
    assert known.list_unknown() == []


def test_answers_about_a_deleted_class_change_nothing():
    known = offer(devices.build_class("nics", LATER, extended_resource="example.com/nic"))
    count(known, "example.com/nic")
    questions = known.names.evaluations.list_questions()
    known.class_sink.replace(())
    assert known.answer({question.number: selecting.evaluate(LATER, {}) for question in questions}) == set()
    assert count(known, "example.com/nic") == 0


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["dra.net"].rdmaDevice.matches("^rdmap32s27$")',
        'has(device.attributes["dra.net"].rdmaDevice) && device.attributes["dra.net"].rdmaDevice in ["rdmap32s27"'
        + ', "rdmap32s27"' * 100
        + "]",
    ],
    ids=["not plain", "long"],
)
def test_a_request_with_an_unknown_expression_is_for_no_rail_and_is_reported(expression):
    known = offer(devices.NIC_CLASS, devices.GPU_CLASS)
    known.replace_claim_resources(claimed_rails.list_claim_resources(policy().document))
    assert count(known, RAIL[1]) == 1
    tree = build_claim("c", (), gpus=0, pod_uid="u", requests={"nic": (devices.NIC_CLASS, expression)})
    known.claim_sink.upsert(devices.read_claim(tree))
    names = known.compute_requests(claim_index.PodKey("u"))
    assert [name for name in RAIL if name in names] == []
    assert known.names.evaluations.list_questions() == [], (
        "expressions of users are not evaluated in another process either"
    )
    [row] = known.list_unknown()
    assert (row.kind, row.metadata.name, row.expression) == (resource_names.CLAIM, "c", expression)
