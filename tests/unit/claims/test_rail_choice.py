"""The rails of a gang: those on which the nodes have room for the most pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.claims import claim_templates, device_pairs, drivers, node_devices

ROOT = drivers.PCIE_ROOT
NAMES = node_devices.DeviceNames(("rail0", "rail1", "rail2", "rail3"), "gpu", ROOT)


def choose(count, nodes, *, waiting=None, gpus=8, devices_per_rail=1, last_first=False):
    rails = len(next(iter(nodes), (0, 0, 0, 0)))
    hardware = claim_templates.Hardware(
        device_class="dranet",
        driver="dra.net",
        node=claim_templates.Node(accelerators=gpus, rails=rails),
        devices_per_rail=devices_per_rail,
    )
    free = claim_templates.FreeDevices(
        {node_devices.FreeRails(counts): number for counts, number in nodes.items()}, waiting or {}
    )
    return claim_templates.choose_rails(hardware, count, 0, free, last_first=last_first)


ALL_FREE = {(1, 1, 1, 1): 4}
# EKS p5 with two groups of four: each rail of the first is free on 15 nodes of 16, all four only on 12
TWO_GROUPS = {
    **dict.fromkeys([tuple(int(rail != other) for rail in range(8)) for other in range(4)], 1),
    (1, 1, 1, 1, 0, 1, 1, 1): 3,
    (1,) * 8: 9,
}


@pytest.mark.parametrize(
    ("count", "nodes", "options", "chosen"),
    [
        (2, ALL_FREE, {}, (0, 1)),
        (2, {}, {}, (0, 1)),
        (2, {(0, 0, 1, 1): 3, (1, 1, 1, 1): 1}, {}, (2, 3)),
        (2, {(0, 1, 1, 1): 1, (1, 1, 0, 1): 1, (1, 1, 1, 1): 14}, {}, (1, 3)),
        # rail0 and rail2 are free on as many nodes as others, and together on more
        (2, {(1, 0, 1, 0): 2, (0, 1, 0, 1): 1, (1, 0, 0, 1): 1, (0, 1, 1, 0): 1}, {}, (0, 2)),
        (1, {(2, 4, 3, 4): 1}, {}, (1,)),
        # the last ones on request
        (2, ALL_FREE, {"last_first": True}, (2, 3)),
        (2, {(1, 1, 0, 1): 1, **ALL_FREE}, {"last_first": True}, (1, 3)),
        # the rails of a group count together
        (4, TWO_GROUPS, {"gpus": 2}, (4, 5, 6, 7)),
        # a part of a group, such as two of four EFA devices at one PCIe root, has its freest rails
        (2, {(1, 0, 1, 1): 4}, {"gpus": 1}, (0, 2)),
        (2, {**ALL_FREE, (0, 1, 1, 1): 1, (1, 1, 0, 1): 2}, {"gpus": 1}, (1, 3)),
        (2, ALL_FREE, {"gpus": 1, "waiting": {(0, 1): 1}}, (2, 3)),
        # pods that wait reduce the room of their rails
        (2, ALL_FREE, {"waiting": {(0, 1): 1}}, (2, 3)),
        (2, ALL_FREE, {"waiting": {(0, 1): 3, (2, 3): 2}}, (2, 3)),
        # a rail has room for all devices of a pod
        (1, {(3, 1, 4, 2): 2}, {"devices_per_rail": 4}, (2,)),
    ],
)
def test_the_rails_with_room_for_the_most_pods_are_chosen(count, nodes, options, chosen):
    assert choose(count, nodes, **options) == chosen


@given(
    st.integers(1, 4),
    st.dictionaries(st.tuples(*[st.integers(0, 2)] * 4), st.integers(1, 5), max_size=6),
)
def test_the_chosen_rail_has_at_least_the_room_of_every_other(count, nodes):
    chosen = choose(count, nodes)
    assert (len(chosen), list(chosen)) == (count, sorted(set(chosen)))
    free = [sum(counts[rail] * number for counts, number in nodes.items()) for rail in range(4)]
    if count == 1:
        assert free[chosen[0]] == max(free)
    if count == 4:
        assert chosen == (0, 1, 2, 3)


def choose_with_gpus(count, nodes, *, gpus, of_node=8, names=NAMES):
    """`nodes` are lists of free devices: resource and PCIe root, None if the device does not say it."""
    hardware = claim_templates.Hardware("dranet", "dra.net", claim_templates.Node(of_node, 4), accelerator_class="gpu")
    counted = [node_devices.count_free_rails(read_devices(node), (ROOT,), names) for node in nodes]
    free = claim_templates.FreeDevices({node: counted.count(node) for node in counted})
    return claim_templates.choose_rails(hardware, count, gpus, free)


def read_devices(node):
    return [
        device_pairs.FreeDevice(
            ("class-gpu" if name == "gpu" else "class-nic", name), {} if root is None else {ROOT: root}
        )
        for name, root in node
    ]


RAILS_OF_FOUR_ROOTS = [(f"rail{number}", number) for number in range(4)]
RAILS_OF_TWO_ROOTS = [(f"rail{number}", number // 2) for number in range(4)]


@pytest.mark.parametrize(
    ("count", "gpus", "node", "chosen"),
    [
        (1, 2, [*RAILS_OF_FOUR_ROOTS, ("gpu", 0), ("gpu", 1), ("gpu", 1), ("gpu", 2)], (1,)),
        (1, 1, [*RAILS_OF_FOUR_ROOTS, ("gpu", 3)], (3,)),
        (2, 2, [*RAILS_OF_FOUR_ROOTS, ("gpu", 0), ("gpu", 0), ("gpu", 3)], (0, 3)),
        # rail0 and rail1 share two GPUs
        (2, 2, [*RAILS_OF_TWO_ROOTS, ("gpu", 0), ("gpu", 1), ("gpu", 1)], (0, 2)),
        (2, 4, [*RAILS_OF_TWO_ROOTS, ("gpu", 0), ("gpu", 0), ("gpu", 1), ("gpu", 1), ("gpu", 1)], (0, 2)),
        # no constraint holds for a device without the attribute
        (1, 1, [("rail0", None), ("rail1", 1), ("gpu", None), ("gpu", 1)], (1,)),
        # a device with a list of roots may be at any of them
        (1, 1, [("rail0", 0), ("rail1", 1), ("gpu", device_pairs.ANY)], (0,)),
        (1, 1, [("rail0", 0), ("rail1", device_pairs.ANY), ("gpu", 1)], (1,)),
    ],
)
def test_a_rail_has_room_with_free_gpus_at_its_root(count, gpus, node, chosen):
    assert choose_with_gpus(count, [node], gpus=gpus) == chosen


def test_without_pairs_a_node_without_gpus_has_no_room():
    names = NAMES._replace(pair_attribute="")
    node = [("rail1", 1), ("gpu", 0)]
    assert choose_with_gpus(1, [node, [("rail0", 0)], [("rail0", 0)]], gpus=1, names=names) == (1,)


@given(
    st.sampled_from([1, 2, 4, 8]),
    st.lists(
        st.lists(st.tuples(st.sampled_from([*NAMES.rails, "gpu", "gpu"]), st.integers(0, 3)), max_size=12), max_size=4
    ),
    st.data(),
)
def test_the_first_group_has_room_for_the_most_pairs(of_node, nodes, data):
    """Compared with the pairs that placement counts. A rail is at one root, as on real nodes."""
    roots = {name: data.draw(st.integers(0, 3)) for name in NAMES.rails}
    nodes = [[(name, roots.get(name, root)) for name, root in node] for node in nodes]
    node = claim_templates.Node(of_node, 4)
    count, gpus = 4 // node.groups, data.draw(st.integers(1, node.accelerators_of_group))
    pods = {
        rails: sum(device_pairs.count_pods(read_devices(free), demand_pair(rails, gpus)).pods for free in nodes)
        for rails in [claim_templates.order_rails(node, count, [group], range(4)) for group in range(node.groups)]
    }
    assert pods[choose_with_gpus(count, nodes, gpus=gpus, of_node=of_node)] == max(pods.values())


def demand_pair(rails, gpus):
    """One constraint for GPUs and these rails."""
    kinds = [("gpu", "class-gpu", gpus), *((f"rail{rail}", "class-nic", 1) for rail in rails)]
    members = [
        device_pairs.PairedDevices(device_pairs.DeviceKind(device_class, (name,)), number)
        for name, device_class, number in kinds
    ]
    return [device_pairs.Pair(ROOT, tuple(members))]
