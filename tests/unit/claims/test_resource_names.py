"""Devices of claims count under the resources of the policy's rails."""

import devices
import msgspec
import pytest
from claimed import FABRIC, GPU, RAIL, RAILS, build_claim, build_template, policy

from railwright.fabric.claims import claim_index, claim_templates, objects
from railwright.fabric.policy import claimed_rails

NAMED = claimed_rails.list_claim_resources(policy().document)
PCI = 'device.attributes["dra.net"].pciAddress'


@pytest.fixture
def known():
    known = devices.build_inventory("n1", "n2", classes=(devices.GPU_CLASS, devices.NIC_CLASS))
    known.replace_claim_resources(NAMED)
    assert [bool(known.count_devices(node).capacity) for node in ("n1", "n2")] == [True, True]
    return known


def count(known, name, field="allocatable", node="n1"):
    return getattr(known.count_devices(node), field).get(name, 0) // 1000


def requests(known, tree):
    known.claim_sink.upsert(devices.read_claim(tree))
    amounts = known.compute_requests(claim_index.PodKey("u"))
    return {name: amount // 1000 for name, amount in amounts.items() if not name.startswith("deviceclass.")}


def test_devices_count_under_their_rail_or_accelerator(known):
    assert [count(known, name) for name in (*RAIL, GPU)] == [1, 1, 1, 1, 8]


def test_a_new_policy_renames_devices_at_once(known):
    assert known.replace_claim_resources(NAMED) == set()
    assert known.replace_claim_resources(()) == {"n1", "n2"}
    assert count(known, RAIL[0]) == 0


def test_a_request_with_a_rails_expression_is_for_that_rail(known):
    assert requests(known, build_claim("c", (1, 3), gpus=2, pod_uid="u")) == {RAIL[1]: 1, RAIL[3]: 1, GPU: 2}


@pytest.mark.parametrize(
    ("names", "expected"), [('["rdmap32s27"]', {RAIL[1]: 1}), ('["rdmap16s27", "rdmap32s27"]', {})]
)
def test_a_request_is_for_a_rail_if_it_can_select_no_other(known, names, expected):
    expression = f'device.attributes["dra.net"].rdmaDevice in {names}'
    tree = build_claim("c", (), gpus=0, pod_uid="u", requests={"nic": (devices.NIC_CLASS, expression)})
    assert requests(known, tree) == expected


@pytest.mark.parametrize("name", ["a class", "a rail"])
def test_what_an_expression_selects_that_is_not_plain_does_not_count(name):
    expression = 'device.driver == "dra.net" && device.attributes["dra.net"].rdmaDevice.startsWith("rdmap")'
    is_class = name == "a class"
    nics = devices.build_class("dranet", expression) if is_class else devices.NIC_CLASS
    known = devices.build_inventory("n1", classes=(nics,))
    resource = NAMED[0] if is_class else msgspec.structs.replace(NAMED[0], expressions=(expression,))
    known.replace_claim_resources([resource])
    assert count(known, RAIL[0]) == 0
    assert requests(known, build_claim("c", (0,), gpus=0, pod_uid="u")) == {}


def test_an_allocated_device_keeps_its_rail(known):
    assert count(known, RAIL[0]) == 1
    held = build_claim("c", (0,), gpus=0, pod_uid="u", on="n1")
    known.claim_sink.upsert(devices.read_claim(held))
    [nics, _] = devices.build_slices("n1", generation=2)
    nics["spec"]["devices"][1]["attributes"].pop("dra.net/rdmaDevice")
    known.slice_sink.upsert(devices.read_slices(nics)[0])
    assert (count(known, RAIL[0], "capacity"), count(known, RAIL[0], "allocated")) == (1, 1)
    known.claim_sink.remove(devices.read_claim(held))
    assert count(known, RAIL[0], "capacity") == 0  # it is free, and nothing says that it is rail0


def test_a_pod_requests_the_rails_of_its_template_before_its_claim_exists(known):
    key = claim_index.PodKey("u", (), (claim_index.NamedTemplate("railwright", "train/t"),))
    assert known.compute_requests(key) == {}
    assert known.template_sink.upsert(build_template("t", (0, 1))) == {"train/t"}
    assert known.template_sink.upsert(build_template("t", (0, 1))) == set()
    by_template = known.compute_requests(key)
    assert (by_template[RAIL[0]], by_template[RAIL[1]], by_template[GPU]) == (1000, 1000, 2000)
    known.claim_sink.upsert(devices.read_claim(build_claim("c", (0, 1), gpus=2, pod_uid="u", entry="railwright")))
    assert known.compute_requests(key) == by_template
    known.template_sink.remove(build_template("t", (0, 1)))
    assert known.compute_requests(key) == by_template


def test_devices_are_on_the_numa_node_of_their_nic(known):
    by_node = known.count_by_numa_node("n1")
    assert [by_node.allocatable[number][GPU] // 1000 for number in (0, 1)] == [4, 4]
    assert [sorted(set(RAIL) & set(by_node.free[number])) for number in (0, 1)] == [list(RAIL[:2]), list(RAIL[2:])]
    known.claim_sink.upsert(devices.read_claim(build_claim("c", (0,), gpus=1, pod_uid="u", on="n1")))
    by_node = known.count_by_numa_node("n1")
    assert (by_node.free[0][RAIL[0]], by_node.free[0][GPU] // 1000) == (0, 3)
    assert by_node.allocatable[0][RAIL[0]] == 1000
    own = known.claims.list_held_devices(claim_index.PodKey("u"))
    assert known.count_by_numa_node("n1", own).free[0][GPU] // 1000 == 4


def test_a_device_without_pci_root_and_numa_attribute_is_on_no_numa_node(known):
    slices = devices.build_slices("n1", generation=2)
    for device in (device for tree in slices for device in tree["spec"]["devices"]):
        device["attributes"].pop("resource.kubernetes.io/pcieRoot", None)
        if "dra.net/numaNode" in device["attributes"]:
            device["attributes"]["dra.net/numaNode"] = {"int": -1}
    known.slice_sink.replace(devices.read_slices(*slices))
    assert not known.count_by_numa_node("n1").allocatable


def test_the_templates_that_railwright_writes_count_by_their_rails(known):
    compiled = claimed_rails.compile_claims(FABRIC, policy().document)
    rails = [
        claim_templates.RailRequest(rail, position, compiled.rails[rail].expression)
        for position, rail in enumerate(RAILS)
    ]
    hardware = claim_templates.Hardware(
        device_class=compiled.claims.device_class,
        driver=compiled.driver.name,
        node=claim_templates.Node(accelerators=8, rails=4),
        accelerator_class=compiled.accelerator_class,
        pair_attribute=compiled.pair_attribute,
    )
    [spec] = claim_templates.build_specs(hardware, rails[1:3], 4)
    tree = {"metadata": {"name": "t", "namespace": "train"}, "spec": {"spec": {"devices": spec}}}
    known.template_sink.upsert(msgspec.convert(tree, objects.ResourceClaimTemplate))
    key = claim_index.PodKey("u", (), (claim_index.NamedTemplate("railwright", "train/t"),))
    amounts = known.compute_requests(key)
    assert [amounts.get(name, 0) // 1000 for name in (*RAIL, GPU)] == [0, 1, 1, 0, 4]
