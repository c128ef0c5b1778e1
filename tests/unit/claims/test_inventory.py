"""Devices of slices, counted by the resource names of their classes."""

import sys

import devices
import msgspec
import pytest

from railwright.fabric.claims import claim_index, node_devices, objects
from railwright.fabric.placement.state import claimed_devices

GPU, RAIL0, RAIL1 = "nvidia.com/gpu", *devices.RAIL_RESOURCES[:2]
HELD = ("dra.net", "n1", "pci-0000-10-1b-0")


@pytest.fixture
def known():
    return devices.build_inventory("n1", "n2")


def count(known, node, name, field="allocatable"):
    return getattr(known.count_devices(node), field).get(name, 0) // 1000


def test_devices_count_by_both_names_of_their_class(known):
    assert (count(known, "n1", GPU), count(known, "n1", RAIL0)) == (8, 1)
    assert count(known, "n1", "deviceclass.resource.kubernetes.io/gpu.nvidia.com") == 8
    assert known.count_devices("n3") == node_devices.NO_DEVICES


def test_a_device_that_matches_no_class_is_not_counted(known):
    assert sum(known.count_devices("n1").capacity.values()) // 1000 == 2 * (8 + 4)  # the management NIC is missing


def test_a_device_is_held_until_its_claim_is_released(known):
    claim = devices.read_claim(devices.build_claim("c", {"nic": "rail0"}, pod_uid="u", allocated=[HELD]))
    assert known.claim_sink.upsert(claim) == {"n1"}
    assert (count(known, "n1", RAIL0, "allocated"), count(known, "n2", RAIL0, "allocated")) == (1, 0)
    assert known.claim_sink.upsert(claim) == set()
    assert known.claim_sink.upsert(devices.read_claim(devices.build_claim("c", {"nic": "rail0"}))) == {"n1"}
    assert count(known, "n1", RAIL0, "allocated") == 0
    known.claim_sink.upsert(claim)
    assert known.claim_sink.remove(claim) == {"n1"}
    assert count(known, "n1", RAIL0, "allocated") == 0


@pytest.mark.parametrize(("effect", "left"), [("NoSchedule", 0), ("NoExecute", 0), ("None", 1)])
def test_a_tainted_device_stays_in_capacity_only(known, effect, left):
    tainted = devices.build_slices("n1", taints={"pci-0000-10-1b-0": effect})
    assert known.slice_sink.upsert(devices.read_slices(*tainted)[0]) == {"n1"}
    assert (count(known, "n1", RAIL0), count(known, "n1", RAIL0, "capacity")) == (left, 1)


def build_rule(name, **selector):
    tree = {
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": "NoSchedule"}},
    }
    return msgspec.convert(tree, objects.DeviceTaintRule)


@pytest.mark.parametrize(
    "selector",
    [
        {},
        {"driver": "dra.net"},
        {"pool": "n1"},
        {"device": "pci-0000-10-1b-0"},
        {"driver": "dra.net", "pool": "n1", "device": "pci-0000-10-1b-0"},
    ],
)
def test_a_taint_rule_taints_what_it_selects_now(known, selector):
    known.taint_rule_sink.upsert(build_rule("r", **selector))
    assert [count(known, node, RAIL0) for node in ("n1", "n2")] == [0, 1 if "pool" in selector else 0]
    known.taint_rule_sink.upsert(build_rule("r", pool="another"))
    assert count(known, "n1", RAIL0) == 1
    known.taint_rule_sink.replace([build_rule("r", **selector)])
    assert count(known, "n1", RAIL0) == 0
    known.taint_rule_sink.remove(build_rule("r", pool="another"))
    assert count(known, "n1", RAIL0) == 1


def count_calls(function):
    calls = 0

    def count_call(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_call)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def test_rules_for_devices_of_other_nodes_cost_nothing(known):
    """A cluster may have a rule for each of its broken devices."""
    calls = []
    for number in (1, 200):
        rules = [build_rule(f"r{n}", driver="dra.net", pool=f"other-{n}", device="eth0") for n in range(number)]
        known.taint_rule_sink.replace(rules)
        calls.append(count_calls(lambda: known.count_devices("n1")))
    assert calls[1] <= calls[0]


def test_only_the_newest_generation_of_a_complete_pool_counts(known):
    [nics, _] = devices.build_slices("n1", generation=2, without=["pci-0000-10-1b-0"])
    nics["metadata"]["name"] = "n1-new"
    nics["spec"]["pool"]["resourceSliceCount"] = 2
    [newer] = devices.read_slices(nics)
    known.slice_sink.upsert(newer)
    assert count(known, "n1", RAIL1) == 0  # the second slice of generation 2 is missing
    nics["spec"]["pool"]["resourceSliceCount"] = 1
    [newer] = devices.read_slices(nics)
    known.slice_sink.upsert(newer)
    assert (count(known, "n1", RAIL0), count(known, "n1", RAIL1)) == (0, 1)
    known.slice_sink.remove(newer)
    assert count(known, "n1", RAIL0) == 1  # the slice of generation 1 is there again


def test_the_newer_class_has_a_shared_extended_resource(known):
    newer = devices.build_class("z-none", "false", GPU, created="2026-11-22T00:00:00Z")
    known.class_sink.upsert(devices.read_classes(newer)[0])
    assert count(known, "n1", GPU) == 0
    assert count(known, "n1", "deviceclass.resource.kubernetes.io/gpu.nvidia.com") == 8


def test_a_class_whose_expression_fails_offers_nothing(known):
    broken = devices.build_class("broken", 'device.attributes["dra.net"].nope == "x"', "example.com/x")
    known.class_sink.upsert(devices.read_classes(broken)[0])
    assert count(known, "n1", "example.com/x") == 0


def test_a_pod_requests_what_its_claims_request(known):
    key = claim_index.PodKey("u")
    requests = {"nic": "rail0", "gpu": "gpu.nvidia.com"}
    known.claim_sink.upsert(devices.read_claim(devices.build_claim("c", requests, pod_uid="u")))
    before = known.compute_requests(key)
    assert (before[RAIL0], before[GPU]) == (1000, 1000)
    known.claim_sink.upsert(devices.read_claim(devices.build_claim("d", {"gpu": "gpu.nvidia.com"}, pod_uid="v")))
    assert RAIL0 not in known.compute_requests(claim_index.PodKey("v")), "claims that differ count apart"
    assert not known.claims.list_held_devices(key)
    allocated = [HELD, ("gpu.nvidia.com", "n1", "gpu-0")]
    known.claim_sink.upsert(devices.read_claim(devices.build_claim("c", requests, pod_uid="u", allocated=allocated)))
    assert known.compute_requests(key) == before
    assert len(known.claims.list_held_devices(key)) == 2
    assert known.list_allocated_nodes(key) == {"n1"}


def test_a_claim_that_a_pod_names_counts_for_it(known):
    known.claim_sink.upsert(devices.read_claim(devices.build_claim("shared", {"nic": "rail0"})))
    assert known.compute_requests(claim_index.PodKey("u", ("train/shared",)))[RAIL0] == 1000
    assert not known.compute_requests(claim_index.PodKey("u", ("other/shared",)))


def test_the_claim_of_an_extended_resource_adds_nothing(known):
    claim = devices.build_claim("c", {"nic": "rail0"}, pod_uid="u", allocated=[HELD], extended=True)
    known.claim_sink.upsert(devices.read_claim(claim))
    assert not known.compute_requests(claim_index.PodKey("u"))
    assert known.claims.list_held_devices(claim_index.PodKey("u"))


def test_a_resource_that_kubelet_reports_is_not_taken_from_slices(known):
    claimed = claimed_devices.ClaimedDevices()
    claimed.inventory = known
    reported = claimed_devices.NodeAmounts({GPU: 3000, RAIL0: 0}, {GPU: 4000, RAIL0: 1000})
    completed = claimed.complete("n1", reported)
    assert (completed.allocatable[GPU], completed.capacity[GPU]) == (3000, 4000)
    assert completed.allocatable[RAIL0] == 1000  # 0: a device plugin that is gone does not hide the slices
