"""CEL selectors of devices, with the semantics of kube-scheduler."""

import pytest

from railwright.fabric.claims import selectors

DEVICE = {
    "driver": "dra.net",
    "attributes": {"dra.net": {"rdmaDevice": "mlx5_0", "rdma": True, "numaNode": 1, "firmware": "1.2.3"}},
    "capacity": {"dra.net": {"bandwidth": "400G"}},
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "dra.net"', True),
        ("device.attributes['dra.net'].rdma && device.attributes['dra.net'].numaNode == 1", True),
        ('has(device.attributes["dra.net"].ifName)', False),
        ('has(device.attributes["gpu.nvidia.com"].type)', False),  # an unknown domain is an empty map
        ('device.attributes["dra.net"].?ifName.orValue("none") == "none"', True),
        ('cel.bind(nic, device.attributes["dra.net"], nic.rdma && nic.rdmaDevice.startsWith("mlx5_"))', True),
        ('device.attributes["dra.net"].firmware.isLessThan(semver("1.10.0"))', True),
        ('device.attributes["dra.net"].firmware.isGreaterThan(semver("1.2.3-rc.1"))', True),
        ('device.capacity["dra.net"].bandwidth.compareTo(quantity("200G")) > 0', True),
        ('device.capacity["dra.net"].bandwidth.isGreaterThan(quantity("1T"))', False),
    ],
)
def test_an_expression_is_evaluated_as_kube_scheduler_does(expression, expected):
    assert selectors.matches(expression, DEVICE) is expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ('device.attributes["dra.net"].ifName == "eth1"', "ifName"),  # no has(): an attribute that is absent
        ("device.", "Syntax error"),
        ('"text"', "text"),
        # CEL's library raises other errors for these; users may write them in claims
        (f"{list(range(200))}.all(a, {list(range(200))}.all(b, true))", "budget"),
        ('dyn(device.attributes["dra.net"].?rdmaDevice)', "neither true nor false"),
    ],
)
def test_an_expression_that_fails_is_an_error_that_names_the_cause(expression, message):
    with pytest.raises(selectors.SelectorError, match=message):
        selectors.matches(expression, DEVICE)


def test_a_device_does_not_match_an_expression_that_fails():
    assert not selectors.match_all(("dyn(optional.none())",), DEVICE)


def test_the_device_is_not_changed():
    selectors.matches('has(device.attributes["gpu.nvidia.com"].type)', DEVICE)
    assert list(DEVICE["attributes"]) == ["dra.net"]


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "dra.net" && device.attributes["dra.net"].numaNode == 0',
        'has(device.attributes["dra.net"].ifName)',
        '"dra.net" in device.attributes && device.attributes["dra.net"]["numaNode"] == 0',  # reads by other means
        'cel.bind(nic, device.attributes["dra.net"], nic.numaNode == 0)',
        'device.capacity["dra.net"].bandwidth.compareTo(quantity("400G")) == 0',
    ],
)
def test_a_result_is_not_taken_from_a_device_that_differs_in_what_is_read(expression):
    attributes = {"numaNode": 0, "ifName": "eth1"}
    twin = {"driver": "dra.net", "attributes": {"dra.net": attributes}, "capacity": {"dra.net": {"bandwidth": "400G"}}}
    other_attributes = {"attributes": {"dra.net": {"numaNode": 1}}, "capacity": {"dra.net": {"bandwidth": "200G"}}}
    assert selectors.matches(expression, twin)
    assert not selectors.matches(expression, {**twin, **other_attributes})
    assert selectors.matches(expression, {**twin, "attributes": {"dra.net": {**attributes, "mac": "00:11"}}})


def test_false_and_zero_are_different_values():
    expression = 'device.attributes["dra.net"].rdma == false'
    devices = [{"driver": "d", "attributes": {"dra.net": {"rdma": value}}, "capacity": {}} for value in (0, False)]
    assert [selectors.matches(expression, device) for device in devices] == [False, True]


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


def test_an_attribute_in_brackets_is_one_that_the_result_depends_on():
    expression = 'device.attributes["dra.net"]["rdmaDevice"] == "mlx5_0"'
    devices = [
        {"driver": "dra.net", "attributes": {"dra.net": {"rdmaDevice": name}}, "capacity": {}}
        for name in ("mlx5_0", "mlx5_1")
    ]
    assert [selectors.matches(expression, device) for device in devices] == [True, False]


@pytest.mark.parametrize("expression", ["device.driver ==", "size(device.driver)", "device.name()"])
def test_what_is_no_expression_over_a_device_is_refused(expression):
    with pytest.raises(selectors.SelectorError):
        selectors.check_syntax(expression)
