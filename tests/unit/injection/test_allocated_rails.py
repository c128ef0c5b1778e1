"""Which rail a device belongs to that a claim holds, and the name of its RDMA device, by driver and policy."""

import devices
import msgspec
import pytest
from admitting import fabric

from railwright.fabric import views
from railwright.fabric.claims import allocation, objects, slices
from railwright.fabric.injection import binding
from railwright.fabric.policy import compiled

DRANET = "    claims: {deviceClass: dranet}\n"


def device(name: str, driver: str = "dra.net", request: str = "any", **attributes) -> allocation.AllocatedDevice:
    """Return an allocated device; a keyword is an attribute, with `__` for '/' and `_` in a domain for '.'."""
    described = {
        f"{domain.replace('_', '.')}/{key}" if key else domain: {"string": value}
        for (domain, _, key), value in ((text.partition("__"), value) for text, value in attributes.items())
    }
    tree = {"name": name, "attributes": described}
    offered = msgspec.convert(tree, objects.Device)
    return allocation.AllocatedDevice("claim", request, driver, name, offered)


def assign(by, *allocated):
    compiled_fabric = by.compile_once(compiled.compile_policy).fabrics["f"]
    nics = binding.assign(allocated, by.document, compiled_fabric, {})
    return [(nic.rail, nic.device, nic.rdma_device) for nic in nics]


def test_a_rail_identified_by_pci_address_has_the_rdma_name_in_the_slice():
    policy = fabric(DRANET, rails="[{name: rail0, claim: {deviceName: pci-0000-20-1b-0}}]")
    nic = device("pci-0000-20-1b-0", dra_net__pciAddress="0000:20:1b.0", dra_net__rdmaDevice="rdmap32s27")
    assert assign(policy, nic) == [("rail0", "pci-0000-20-1b-0", "rdmap32s27")]


def test_a_rail_identified_by_an_expression_gets_the_matching_device():
    expression = "has(device.attributes['dra.net'].pciDevice) && device.attributes['dra.net'].pciDevice == 'left'"
    policy = fabric(DRANET, rails=f'[{{name: rail0, claim: {{expression: "{expression}"}}}}]')
    left, right = (device(side, dra_net__pciDevice=side, dra_net__rdmaDevice=side) for side in ("left", "right"))
    assert assign(policy, right, left) == [("rail0", "left", "left"), ("", "right", "right")]


def test_functions_of_sriov_have_no_rdma_names_unless_the_policy_has():
    claims = "    claims: {deviceClass: vf, driver: sriov}\n"
    rails = "[{name: rail0, network: prod/lan2, claim: {value: r0}}]"
    vf = device("vf0", "sriovnetwork.k8snetworkplumbingwg.io", k8s_cni_cncf_io__resourceName="r0")
    policy = fabric(claims, rails=rails)
    assert assign(policy, vf) == [("rail0", "vf0", "")]
    assert not binding.has_names(policy.compile_once(compiled.compile_policy).fabrics["f"])
    named = fabric(claims, rails=rails.replace("network", "device: mlx5_4, network"))
    assert assign(named, vf) == [("rail0", "vf0", "mlx5_4")]


def test_the_policy_names_the_attribute_of_another_driver():
    claims = (
        "    claims: {deviceClass: n, driver: other, driverName: n.example.com, railAttribute: n.example.com/hca}\n"
    )
    nic = device("n0", "n.example.com", n_example_com__hca="hca0")
    assert assign(fabric(claims, rails="[{name: rail0, device: hca0}]"), nic) == [("rail0", "n0", "hca0")]


ROOT = "resource.kubernetes.io/pcieRoot"


def test_a_value_that_identifies_a_rail_is_not_used_as_rdma_device_name():
    policy = fabric(
        f"    claims: {{deviceClass: efa, railAttribute: {ROOT}}}\n",
        rails='[{name: rail0, claim: {value: "pci0000:44"}}]',
    )
    place = {"resource_kubernetes_io__pcieRoot": "pci0000:44"}
    nic = device("pci-0000-45-00-0", dra_net__rdmaDevice="rdmap69s0", **place)
    assert assign(policy, nic) == [("rail0", "pci-0000-45-00-0", "rdmap69s0")]
    assert assign(policy, device("pci-0000-45-00-0", **place)) == [("rail0", "pci-0000-45-00-0", "")]
    named = fabric(
        "    claims: {deviceClass: n, driver: other, driverName: n.example.com, railAttribute: n.example.com/port}\n",
        rails="[{name: rail0, device: mlx5_0, claim: {value: left}}]",
    )
    assert assign(named, device("n0", "n.example.com", n_example_com__port="left")) == [("rail0", "n0", "mlx5_0")]


@pytest.mark.parametrize(("name", "expected"), [("rail1", [("rail1", "x", "mlx5_9")]), ("any", [("", "x", "mlx5_9")])])
def test_a_request_named_like_a_rail_is_for_that_rail(name, expected):
    nic = device("x", request=name, dra_net__rdmaDevice="mlx5_9")
    assert assign(fabric(rails="[{name: rail0}, {name: rail1}]"), nic) == expected


def test_devices_are_in_the_order_of_the_pods_claims():
    index = slices.SliceIndex()
    index.replace(devices.read_slices(*devices.build_slices("n")))
    held = [
        devices.read_claim(
            devices.build_claim(name, {"x": "c"}, pod_uid="u", allocated=[("dra.net", "n", f"pci-0000-{root}-1b-0")])
        )
        for name, root in (("a", "20"), ("b", "10"))
    ]
    entries = [{"name": "first", "resourceClaimName": "b"}, {"name": "second", "resourceClaimName": "a"}]
    pod = msgspec.convert({"metadata": {"uid": "u"}, "spec": {"resourceClaims": entries}}, views.Pod)
    assert [device.claim for device in allocation.list_devices(pod, held, index, {})] == [
        "b",
        "a",
    ]
