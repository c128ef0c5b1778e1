"""A supported expression selects the devices that Kubernetes' own compiler selects; others are not evaluated."""

import json
import pathlib

import msgspec
import pytest

from railwright.fabric.claims import objects, selectors

# Expressions of drivers and of Kubernetes' tests; results of k8s.io/dynamic-resource-allocation/cel of Kubernetes
# 1.37.2 for each device: Y, N or F(ails). A device for which an expression fails gets no pod.
TREE = json.loads(pathlib.Path("tests/data/claims/selectors.json").read_text())
DEVICES = list(TREE["devices"].values())
NIC = 'device.attributes["dra.net"]'


def select(expression, tree):
    selection = selectors.parse_terms((expression,))
    assert selection is not None, expression
    return selectors.selects_device(
        selection, msgspec.convert({"name": "d", **tree}, objects.Device), tree.get("driver", "")
    )


def nic(**attributes):
    types = {bool: "bool", int: "int", str: "string"}
    described = {f"dra.net/{name}": {types[type(value)]: value} for name, value in attributes.items()}
    return {"driver": "dra.net", "attributes": described}


def test_supported_expressions_select_the_devices_that_kubernetes_selects():
    read = [row for row in TREE["rows"] if selectors.parse_terms((row["expression"],)) is not None]
    assert len(read) > 90
    for row in read:
        devices = [row["device"]] if "device" in row else DEVICES
        selected = "".join("Y" if select(row["expression"], tree) else "N" for tree in devices)
        assert selected == row["results"].replace("F", "N"), row["expression"]


def test_expressions_about_the_driver_in_published_classes_are_supported():
    classes = [row["expression"] for row in TREE["rows"] if "device.driver" in row["expression"]]
    assert len(classes) > 15
    assert [expression for expression in classes if selectors.parse_terms((expression,)) is None] == []


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        "",
        'device.driver != "dra.net"',
        'device.driver == "a" || device.driver == "b"',
        '(device.driver == "a")',
        '!has(device.attributes["dra.net"].rdma)',
        f'{NIC}.ifName.startsWith("eth")',
        f"{NIC}.numaNode < 2",
        f'{NIC}.ifName == "a\\"b"',
        f'{NIC}.ifName == "a" && cidr("10.0.0.0/8").containsIP("10.1.2.3")',
        f'{NIC}.mac == r"a"',
        'device.capacity["dra.net"].bandwidth.compareTo(quantity("400G")) == 0',
    ],
)
def test_unsupported_expressions_are_not_evaluated(expression):
    assert selectors.parse_terms((expression,)) is None
    assert selectors.parse_terms(('device.driver == "dra.net"', expression)) is None


def test_false_and_zero_are_different_attribute_values():
    assert [select(f"{NIC}.rdma == {text}", nic(rdma=0)) for text in ("0", "false")] == [True, False]
    assert [select(f"{NIC}.rdma == {text}", nic(rdma=False)) for text in ("0", "false")] == [False, True]


def test_expressions_that_railwright_writes_can_be_parsed_again():
    assert select(selectors.build_expression("dra.net/rdmaDevice", ["mlx5_0"]), nic(rdmaDevice="mlx5_0"))
    assert not select(selectors.build_expression("dra.net/port", [1]), nic(port=True))
    path = 'device.attributes["dra.net"].port'
    assert selectors.build_expression("dra.net/port", [1, 2]) == f"has({path}) && {path} in [1, 2]"
