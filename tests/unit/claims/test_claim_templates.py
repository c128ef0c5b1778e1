"""Claim templates of a pod: true pairs, no claim too large, nothing lost."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.claims import claim_templates, drivers

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"


def build_hardware(accelerators=8, rails=8, **more):
    more = {"accelerator_class": "gpu.nvidia.com", "pair_attribute": PCIE_ROOT} | more
    node = claim_templates.Node(accelerators=accelerators, rails=rails)
    return claim_templates.Hardware(device_class="dranet", driver="dra.net", node=node, **more)


def build_rails(positions, **more):
    return [
        claim_templates.RailRequest(f"rail{position}", position, f"device.number == {position}", **more)
        for position in positions
    ]


def build(hardware, positions, accelerators, **more):
    return claim_templates.build_specs(hardware, build_rails(positions, **more), accelerators)


def pairs(devices):
    return [constraint["requests"] for constraint in devices.get("constraints", ())]


def count_devices(devices):
    return sum(request["exactly"]["count"] for request in devices["requests"])


def test_each_gpu_and_its_nic_share_a_constraint():
    (devices,) = build(build_hardware(), [0, 1], 2, parameters={"interface": {"mtu": 9000}})
    assert [request["name"] for request in devices["requests"]] == ["gpu0", "rail0", "gpu1", "rail1"]
    assert devices["requests"][1]["exactly"] == {
        "deviceClassName": "dranet",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": "device.number == 0"}}],
    }
    assert devices["constraints"] == [
        {"requests": ["gpu0", "rail0"], "matchAttribute": PCIE_ROOT},
        {"requests": ["gpu1", "rail1"], "matchAttribute": PCIE_ROOT},
    ]
    opaque = {"driver": "dra.net", "parameters": {"interface": {"mtu": 9000}}}
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
def test_gpus_share_a_constraint_with_the_rails_of_their_group(node, rails, accelerators, expected):
    (devices,) = build(build_hardware(*node), rails, accelerators)
    assert pairs(devices) == expected
    gpus = [request["name"] for request in devices["requests"] if request["name"].startswith("gpu")]
    assert gpus == [f"gpu{number}" for number in range(accelerators)]


def test_forty_devices_are_split_into_two_claims_between_groups():
    first, second = build(build_hardware(8, 32), range(32), 8)
    assert (count_devices(first), count_devices(second)) == (30, 10)
    assert pairs(second)[0] == ["gpu6", "rail24", "rail25", "rail26", "rail27"]


def test_pairs_by_node_shape_are_selected_by_bus_id():
    hardware = build_hardware(pair_attribute="")
    (devices,) = build(hardware, [0], 1, beside="device.bus == 7")
    assert "constraints" not in devices
    assert devices["requests"][0]["exactly"]["selectors"] == [{"cel": {"expression": "(device.bus == 7)"}}]


def test_a_rail_named_like_a_gpu_keeps_its_name():
    rail = claim_templates.RailRequest("gpu0", 0, "true")
    (devices,) = claim_templates.build_specs(build_hardware(), [rail], 1)
    assert [request["name"] for request in devices["requests"]] == ["gpu1", "gpu0"]


@st.composite
def pods(draw):
    node = (draw(st.integers(1, 16)), draw(st.integers(1, 64)))
    hardware = build_hardware(*node, devices_per_rail=draw(st.integers(1, 8)))
    rails = sorted(draw(st.sets(st.integers(0, node[1] - 1), min_size=1)))
    return hardware, rails, draw(st.integers(0, 16))


@given(pods())
def test_every_device_is_requested_once(pod):
    hardware, rails, accelerators = pod
    claims = build(hardware, rails, accelerators)
    assert claims == build(hardware, rails, accelerators)
    assert len(claims) == claim_templates.count_claims(hardware, accelerators, rails)
    requests = [request for devices in claims for request in devices["requests"]]
    names = [request["name"] for request in requests]
    assert sorted(names) == sorted([f"gpu{n}" for n in range(accelerators)] + [f"rail{rail}" for rail in rails])
    assert all(count_devices(devices) <= drivers.MAX_DEVICES for devices in claims)
    assert all(len(pairs(devices)) <= drivers.MAX_DEVICES for devices in claims)


@given(pods())
def test_no_group_of_gpus_and_nics_is_split_between_claims(pod):
    hardware, rails, accelerators = pod
    claims = build(hardware, rails, accelerators)
    claim_of = {request["name"]: index for index, devices in enumerate(claims) for request in devices["requests"]}
    for group in claim_templates.group_devices(hardware.node, accelerators, rails):
        size = group.accelerators + len(group.rails) * hardware.devices_per_rail
        if size <= drivers.MAX_DEVICES:
            assert len({claim_of[f"rail{rail}"] for rail in group.rails}) <= 1
    for devices in claims:
        members = list(itertools.chain.from_iterable(pairs(devices)))
        assert len(members) == len(set(members))
        for requests in pairs(devices):
            groups = {hardware.node.find_group(int(name[4:])) for name in requests if name.startswith("rail")}
            assert len(groups) == 1


@given(st.integers(1, 16), st.integers(1, 64), st.data())
def test_chosen_rails_are_in_the_order_of_the_fabric(accelerators, rails, data):
    node = claim_templates.Node(accelerators, rails)
    groups = data.draw(st.permutations(range(node.groups)))
    count = data.draw(st.integers(1, rails))
    chosen = claim_templates.order_rails(node, count, groups, range(rails))
    assert len(chosen) == count
    assert list(chosen) == sorted(set(chosen))
