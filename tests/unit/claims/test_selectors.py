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
    ],
)
def test_an_expression_that_fails_is_an_error_that_names_the_cause(expression, message):
    with pytest.raises(selectors.SelectorError, match=message):
        selectors.matches(expression, DEVICE)


def test_the_device_is_not_changed():
    selectors.matches('has(device.attributes["gpu.nvidia.com"].type)', DEVICE)
    assert list(DEVICE["attributes"]) == ["dra.net"]
