"""Devices of slices and requests of claims, counted by the resources of the policy's rails and GPUs."""

import copy

import claimed
import devices
import msgspec
import pytest
from claimed import FABRIC, GPU, RAIL, RAILS, build_claim, build_template, policy

from railwright.fabric.claims import inventory, objects
from railwright.fabric.policy import compiled

NIC = "pci-0000-10-1b-0"
HELD = ("dra.net", "n1", NIC)
POD = inventory.PodKey("u", "train")
NAMING = inventory.PodKey("u", "train", ("train/c",))  # a pod whose spec names the claim


@pytest.fixture
def known():
    return claimed.build_inventory("n1", "n2")


def count(known, name, field="allocatable", node="n1"):
    return getattr(known.count_devices(node), field).get(name, 0) // 1000


def requests(known, tree):
    known.claim_sink.upsert(devices.read_claim(tree))
    return count_requests(known, NAMING)


def count_requests(known, key):
    amounts = known.compute_requests(key).items()
    return {name: amount // 1000 for name, amount in amounts if not name.startswith("deviceclass.")}


# --- devices --------------------------------------------------------------------------------------------------


def test_a_device_counts_under_its_device_class_and_its_rail_or_accelerator(known):
    assert [count(known, name) for name in (*RAIL, GPU)] == [1, 1, 1, 1, 8]
    assert count(known, inventory.name_class("gpu.nvidia.com")) == 8
    assert known.count_devices("n3") == inventory.NO_DEVICES


def test_devices_of_a_class_with_an_unsupported_expression_do_not_count(known):
    expression = 'device.driver == "dra.net" && device.attributes["dra.net"].rdmaDevice.startsWith("rdmap")'
    known.class_sink.upsert(devices.read_classes(devices.build_class("dranet", expression))[0])
    assert count(known, RAIL[0]) == 0
    assert requests(known, build_claim("c", (0,), gpus=0)) == {}


@pytest.mark.parametrize(("effect", "left"), [("NoSchedule", 0), ("NoExecute", 0), ("None", 1)])
def test_a_tainted_device_counts_as_capacity_but_not_as_allocatable(known, effect, left):
    tainted = devices.build_slices("n1", taints={NIC: effect})
    assert known.slice_sink.upsert(devices.read_slices(*tainted)[0]).nodes == {"n1"}
    assert (count(known, RAIL[0]), count(known, RAIL[0], "capacity")) == (left, 1)


def test_only_the_newest_generation_of_a_complete_pool_counts(known):
    [nics, _] = devices.build_slices("n1", generation=2, without=[NIC])
    nics["metadata"]["name"] = "n1-new"
    nics["spec"]["pool"]["resourceSliceCount"] = 2
    [newer] = devices.read_slices(nics)
    known.slice_sink.upsert(newer)
    assert count(known, RAIL[1]) == 0  # the second slice of generation 2 is missing
    nics["spec"]["pool"]["resourceSliceCount"] = 1
    [newer] = devices.read_slices(nics)
    known.slice_sink.upsert(newer)
    assert (count(known, RAIL[0]), count(known, RAIL[1])) == (0, 1)
    known.slice_sink.remove(newer)
    assert count(known, RAIL[0]) == 1  # the slice of generation 1 is there again


def test_a_device_available_to_several_nodes_is_counted_for_none(known):
    shared = devices.build_slices("n1")[0]
    shared["metadata"]["name"] = "network"
    shared["spec"] = {"driver": "dra.net", "pool": {"name": "network"}, "devices": shared["spec"]["devices"]}
    for offered in ({"allNodes": True}, {"perDeviceNodeSelection": True}):
        shared["spec"] |= offered
        known.slice_sink.upsert(devices.read_slices(shared)[0])
        assert (count(known, RAIL[0]), count(known, RAIL[0], node="")) == (1, 0)
    shared["spec"]["devices"] = [device | {"nodeName": "n1"} for device in shared["spec"]["devices"]]
    known.slice_sink.upsert(devices.read_slices(shared)[0])
    assert count(known, RAIL[0]) == 2


# --- requests -------------------------------------------------------------------------------------------------


def test_a_request_with_the_expression_of_a_rail_counts_for_that_rail(known):
    assert requests(known, build_claim("c", (1, 3), gpus=2)) == {RAIL[1]: 1, RAIL[3]: 1, GPU: 2}


def test_a_request_whose_expression_selects_no_single_rail_counts_only_for_its_class(known):
    expression = 'device.attributes["dra.net"].rdmaDevice in ["rdmap16s27", "rdmap32s27"]'
    tree = build_claim("c", (), gpus=0, requests={"nic": (devices.NIC_CLASS, expression)})
    assert requests(known, tree) == {}
    assert known.compute_requests(NAMING) == {inventory.name_class("dranet"): 1000}


def test_the_requests_of_a_pod_stay_equal_when_its_claim_appears_or_its_template_vanishes(known):
    key = inventory.PodKey("u", "train", (), ("train/t",))
    assert known.compute_requests(key) == {}
    assert known.template_sink.upsert(build_template("t", (0, 1))).keys == {"train/t"}
    assert known.template_sink.upsert(build_template("t", (0, 1))).keys == set()
    by_template = count_requests(known, key)
    assert by_template == {RAIL[0]: 1, RAIL[1]: 1, GPU: 2}
    known.claim_sink.upsert(devices.read_claim(build_claim("c", (0, 1), gpus=2, pod_uid="u", on="n1")))
    assert count_requests(known, key) == by_template
    known.template_sink.remove(build_template("t", (0, 1)))
    assert count_requests(known, key) == by_template
    known.claim_sink.replace([])
    assert known.compute_requests(key) == {}


def test_requests_in_a_template_of_railwright_count_under_the_rails(known):
    fabric = compiled.compile_claims(FABRIC, policy().document)
    [tree] = fabric.plan_claims(RAILS[1:3], 4).build_templates("train")
    known.template_sink.upsert(msgspec.convert(tree, objects.ResourceClaimTemplate))
    key = inventory.PodKey("u", "train", (), (f"train/{tree['metadata']['name']}",))
    assert count_requests(known, key) == {RAIL[1]: 1, RAIL[2]: 1, GPU: 4}


@pytest.mark.parametrize(
    ("request_of_claim", "counted"),
    [
        ({"exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}, {GPU: 2}),
        ({"exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}}, {GPU: 1}),
        ({"exactly": {"deviceClassName": "gpu.nvidia.com", "adminAccess": True}}, {}),
        ({"exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "Later", "count": 9}}, {}),
        ({"exactly": {"deviceClassName": "other"}}, {}),
        ({"firstAvailable": [{"deviceClassName": "gpu.nvidia.com"}, {"deviceClassName": "dranet"}]}, {}),
        ({"later": {}}, {}),
    ],
    ids=["two", "all", "admin", "unknown mode", "other class", "alternatives", "unknown kind"],
)
def test_a_request_counts_the_fewest_devices_that_it_may_reserve(known, request_of_claim, counted):
    claim = devices.build_claim("c", {})
    claim["spec"]["devices"]["requests"] = [{"name": "nic", **request_of_claim}]
    assert requests(known, claim) == counted


# --- whose claim it is ----------------------------------------------------------------------------------------


def test_a_claim_does_not_count_for_a_pod_in_another_namespace(known):
    """The owners of claims cannot be trusted, because tenants write them."""
    claim = devices.build_claim("c", {"nic": "dranet"}, pod_uid="u", allocated=[HELD])
    known.claim_sink.upsert(devices.read_claim(claim))
    assert not known.list_allocated_nodes(inventory.PodKey("u", "other"))
    assert known.list_allocated_nodes(POD) == {"n1"}


def test_a_claim_counts_for_its_owner_only_if_the_owner_is_a_pod_and_the_controller(known):
    claim = devices.build_claim("c", {"nic": "dranet"}, pod_uid="u", allocated=[HELD])
    claim["status"]["reservedFor"] = []
    for change in ({"controller": False}, {"apiVersion": "example.com/v1"}):
        tree = copy.deepcopy(claim)
        tree["metadata"]["ownerReferences"][0] |= change
        known.claim_sink.upsert(devices.read_claim(tree))
        assert not known.list_allocated_nodes(POD)
    known.claim_sink.upsert(devices.read_claim(claim))
    assert known.list_allocated_nodes(POD) == {"n1"}


@pytest.mark.parametrize("result", [{"adminAccess": True}, {"shareID": "s"}])
def test_a_device_allocated_with_admin_access_or_a_share_stays_free(known, result):
    claim = devices.build_claim("c", {"nic": "dranet"}, pod_uid="u", allocated=[HELD])
    claim["status"]["allocation"]["devices"]["results"][0] |= result
    known.claim_sink.upsert(devices.read_claim(claim))
    assert known.list_allocated_nodes(POD) == {"n1"}
    assert (count(known, RAIL[0], "allocated"), known.count_exclusive_devices(POD, {RAIL[0]})) == (0, {})


def test_a_device_stays_held_when_only_the_older_of_its_two_claims_is_deleted(known):
    first, second = (
        devices.read_claim(devices.build_claim(name, {"nic": "dranet"}, pod_uid="u", allocated=[HELD]))
        for name in ("first", "second")
    )
    known.claim_sink.upsert(first)
    known.claim_sink.upsert(second)
    known.claim_sink.remove(first)
    assert known.list_claims_on_node("n1") == [second]
    known.claim_sink.remove(second)
    assert known.list_claims_on_node("n1") == []
