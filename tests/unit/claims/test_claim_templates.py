"""Claim templates of a pod: correct pairs, no claim too large, no request lost."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.claims import claim_templates, objects

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMBER = 'device.attributes["example.com"].number'


def build_fabric(accelerators=8, rails=8, **more):
    more = {"accelerator_class": "gpu.nvidia.com", "pair_attribute": PCIE_ROOT} | more
    by_name = {rail.name: rail for rail in build_rails(range(rails))}
    return claim_templates.ClaimedFabric("roce", "dranet", by_name, accelerators, **more)


def build_rails(positions, **more):
    return [
        claim_templates.ClaimedRail(f"rail{position}", position, "example.com/number", (position,), **more)
        for position in positions
    ]


def build(fabric, positions, accelerators, **more):
    return claim_templates.build_claim_devices(fabric, build_rails(positions, **more), accelerators)


def pairs(devices):
    return [constraint["requests"] for constraint in devices.get("constraints", ())]


def count_devices(devices):
    return sum(request["exactly"]["count"] for request in devices["requests"])


def test_a_claim_has_a_constraint_for_each_pair_of_gpu_and_nic():
    (devices,) = build(build_fabric(), [0, 1], 2, interface="net1")
    assert [request["name"] for request in devices["requests"]] == ["gpu0", "rail0", "gpu1", "rail1"]
    assert devices["requests"][1]["exactly"] == {
        "deviceClassName": "dranet",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": f"has({NUMBER}) && {NUMBER} == 0"}}],
    }
    assert devices["constraints"] == [
        {"requests": ["gpu0", "rail0"], "matchAttribute": PCIE_ROOT},
        {"requests": ["gpu1", "rail1"], "matchAttribute": PCIE_ROOT},
    ]
    opaque = {"driver": "dra.net", "parameters": {"interface": {"name": "net1"}}}
    assert devices["config"] == [{"requests": [f"rail{rail}"], "opaque": opaque} for rail in (0, 1)]


@pytest.mark.parametrize(
    ("node", "rails", "accelerators", "expected"),
    [
        ((8, 4), [0, 1], 2, [["gpu0", "rail0"], ["gpu1", "rail1"]]),  # EKS p4d: two GPUs beside each NIC
        ((8, 4), [2], 2, [["gpu0", "gpu1", "rail2"]]),
        ((8, 4), [0, 1, 2, 3], 8, [[f"gpu{2 * rail}", f"gpu{2 * rail + 1}", f"rail{rail}"] for rail in range(4)]),
        ((8, 8), [3, 4], 3, [["gpu0", "rail3"], ["gpu1", "rail4"]]),  # the third GPU has none of the pod's NICs
        ((8, 32), [0, 1, 2, 3], 1, [["gpu0", "rail0", "rail1", "rail2", "rail3"]]),  # EKS p5
        ((8, 8), [0, 1, 2, 3], 2, [["gpu0", "rail0"], ["gpu1", "rail1"]]),
        ((4, 4), [0], 0, []),
        # which two of four NICs have a second of six GPUs beside them is not known
        ((6, 4), [0, 1, 2, 3], 6, [[f"gpu{rail}", f"rail{rail}"] for rail in range(4)]),
    ],
)
def test_a_constraint_joins_the_gpus_and_rails_of_one_hardware_group(node, rails, accelerators, expected):
    (devices,) = build(build_fabric(*node), rails, accelerators)
    assert pairs(devices) == expected
    gpus = [request["name"] for request in devices["requests"] if request["name"].startswith("gpu")]
    assert gpus == [f"gpu{number}" for number in range(accelerators)]


def test_forty_devices_become_two_claims_without_a_split_group():
    first, second = build(build_fabric(8, 32), range(32), 8)
    assert (count_devices(first), count_devices(second)) == (30, 10)
    assert pairs(second)[0] == ["gpu6", "rail24", "rail25", "rail26", "rail27"]


@st.composite
def pods(draw):
    node = gpus, rails = (draw(st.integers(1, 16)), draw(st.integers(1, 64)))
    each, groups = draw(st.integers(1, 8)), min(gpus, rails)
    fits = gpus // groups + -(-rails // groups) * each <= objects.MAX_DEVICES  # a policy without pairs may exceed it
    fabric = build_fabric(*node, devices_per_rail=each, pair_attribute=PCIE_ROOT if fits else "")
    rails = sorted(draw(st.sets(st.integers(0, node[1] - 1), min_size=1)))
    return fabric, rails, draw(st.integers(0, 16))


@given(pods())
def test_the_claims_of_a_pod_request_each_of_its_gpus_and_rails_once(pod):
    fabric, rails, accelerators = pod
    claims = build(fabric, rails, accelerators)
    assert claims == build(fabric, rails, accelerators)
    requests = [request for devices in claims for request in devices["requests"]]
    names = [request["name"] for request in requests]
    assert sorted(names) == sorted([f"gpu{n}" for n in range(accelerators)] + [f"rail{rail}" for rail in rails])
    assert all(count_devices(devices) <= objects.MAX_DEVICES for devices in claims)
    assert all(len(pairs(devices)) <= objects.MAX_DEVICES for devices in claims)


@given(pods())
def test_a_hardware_group_of_gpus_and_nics_stays_in_one_claim(pod):
    fabric, rails, accelerators = pod
    claims = build(fabric, rails, accelerators)
    claim_of = {request["name"]: index for index, devices in enumerate(claims) for request in devices["requests"]}
    for group in claim_templates.group_devices(fabric, accelerators, build_rails(rails)):
        size = group.accelerators + len(group.rails) * fabric.devices_per_rail
        if size <= objects.MAX_DEVICES:
            assert len({claim_of[rail.name] for rail in group.rails}) <= 1
    for devices in claims:
        members = list(itertools.chain.from_iterable(pairs(devices)))
        assert len(members) == len(set(members))
        for requests in pairs(devices):
            groups = {
                int(name[4:]) * min(fabric.accelerators, len(fabric.rails)) // len(fabric.rails)
                for name in requests
                if name.startswith("rail")
            }
            assert len(groups) == 1


def test_the_name_of_a_claim_template_contains_a_hash_of_its_content():
    (devices,) = build(build_fabric(), [0, 1], 2, interface="net1")
    name = claim_templates.build_template_name("Roce.1", 2, 2, devices)
    assert claim_templates.read_gpu_count(name) == 2
    assert name.startswith("railwright-roce-1-2x2-")
    stored = json.loads(json.dumps(devices))  # an API server may change the order of keys
    stored["requests"][0] = dict(reversed(stored["requests"][0].items()))
    assert claim_templates.has_matching_hash(name, stored)
    stored["config"][0]["opaque"]["parameters"]["interface"]["name"] = "net2"
    assert not claim_templates.has_matching_hash(name, stored)
    assert not claim_templates.has_matching_hash("mine", devices)
