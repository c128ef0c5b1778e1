"""Pairs of claims: which devices must be beside each other, and for how many pods a node has free ones."""

import itertools

import claimed
import devices
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.claims import claim_index, device_pairs, drivers, inventory, objects
from railwright.fabric.policy import claimed_rails

GPU = device_pairs.DeviceKind("deviceclass.resource.kubernetes.io/gpu.nvidia.com", (claimed.GPU,))
NIC = device_pairs.DeviceKind("deviceclass.resource.kubernetes.io/dranet")
ROOT = drivers.PCIE_ROOT


@pytest.fixture
def known():
    known = devices.build_inventory("n1", "n2", classes=(devices.GPU_CLASS, devices.NIC_CLASS))
    known.replace_claim_resources(claimed_rails.list_claim_resources(claimed.policy().document))
    return known


def hold_gpus(known, name, first, count):
    tree = claimed.build_claim(name, (), gpus=count, on="n1", first_gpu=first)
    known.claim_sink.upsert(devices.read_claim(tree))
    return devices.read_claim(tree)


def read_demand(known, tree, name="t"):
    """Return the pairs of a pod whose template has these `devices`."""
    kind = {"metadata": {"name": name, "namespace": "train"}, "spec": {"spec": {"devices": tree}}}
    known.template_sink.upsert(msgspec.convert(kind, objects.ResourceClaimTemplate))
    return known.read_pairs(claim_index.PodKey("u", (), (claim_index.NamedTemplate("c", f"train/{name}"),)))


def read_rails(known, rails, gpus=None):
    return read_demand(known, claimed.build_requests(rails, gpus=len(rails) if gpus is None else gpus))


def describe(pair):
    return pair.attribute, {paired.kind.name: paired.number for paired in pair.devices}


def test_a_constraint_pairs_a_rail_with_a_gpu(known):
    demand = read_rails(known, (0, 2), gpus=3)
    assert list(map(describe, demand.pairs)) == [
        (ROOT, {claimed.RAIL[0]: 1, claimed.GPU: 1}),
        (ROOT, {claimed.RAIL[2]: 1, claimed.GPU: 1}),
    ]
    assert read_rails(known, (0, 2), gpus=3) is demand


def test_a_constraint_without_requests_is_for_all(known):
    requests = [
        {"name": "gpu", "exactly": {"deviceClassName": claimed.GPU_CLASS, "count": 2}},
        {"name": "nic", "exactly": {"deviceClassName": claimed.NIC_CLASS}},
    ]
    constraints = [{"matchAttribute": ROOT}, {"requests": ["nic"], "matchAttribute": ROOT}]
    [pair] = read_demand(known, {"requests": requests, "constraints": constraints}).pairs
    assert describe(pair) == (ROOT, {NIC.device_class: 1, claimed.GPU: 2})


@pytest.mark.parametrize(
    "request_of_any",
    [
        {"firstAvailable": [{"name": "a", "deviceClassName": claimed.NIC_CLASS}]},
        {"exactly": {"deviceClassName": claimed.NIC_CLASS, "allocationMode": "All"}},
        {"exactly": {"deviceClassName": claimed.NIC_CLASS, "adminAccess": True}},
    ],
)
def test_ambiguous_requests_are_left_out(known, request_of_any):
    requests = [{"name": "gpu", "exactly": {"deviceClassName": claimed.GPU_CLASS}}, {"name": "nic", **request_of_any}]
    demand = read_demand(known, {"requests": requests, "constraints": [{"matchAttribute": ROOT}]})
    assert demand == device_pairs.NO_PAIRS


def test_a_rail_without_free_gpus_beside_it_is_no_pair(known):
    demand = read_rails(known, (0, 1))
    assert known.count_pairs("n1", demand) == device_pairs.FreePairs(1, None)  # each rail is one device
    claim = hold_gpus(known, "others", 2, 2)  # both GPUs beside rail1
    lacking = known.count_pairs("n1", demand)
    assert (lacking.pods, describe(lacking.missing)) == (0, (ROOT, {claimed.RAIL[1]: 1, claimed.GPU: 1}))
    assert known.count_pairs("n2", demand).pods == 1
    held = known.claims.list_held_devices(claim_index.PodKey("", ("train/others",)))
    assert known.count_pairs("n1", demand, held).pods == 1
    known.claim_sink.remove(claim)
    assert known.count_pairs("n1", demand).pods == 1


def test_a_tainted_gpu_is_no_pair(known):
    demand = read_rails(known, (1,))
    taints = {"gpu-2": "NoSchedule", "gpu-3": "NoExecute"}
    for offered in devices.read_slices(*devices.build_slices("n1", taints=taints)):
        known.slice_sink.upsert(offered)
    assert known.count_pairs("n1", demand).pods == 0


def test_a_claim_without_a_rail_takes_any_paired_nic(known):
    any_nic = {"deviceClassName": claimed.NIC_CLASS}
    requests = [
        {"name": name, "exactly": any_nic if name.startswith("nic") else {"deviceClassName": claimed.GPU_CLASS}}
        for name in ("gpu0", "nic0", "gpu1", "nic1")
    ]
    pairs = [{"requests": [f"gpu{number}", f"nic{number}"], "matchAttribute": ROOT} for number in range(2)]
    demand = read_demand(known, {"requests": requests, "constraints": pairs})
    assert known.count_pairs("n1", demand).pods == 2  # four pairs
    hold_gpus(known, "others", 0, 4)
    assert known.count_pairs("n1", demand).pods == 1
    hold_gpus(known, "more", 4, 2)
    assert known.count_pairs("n1", demand).pods == 0


def test_a_claim_may_pair_by_another_attribute(known):
    requests = claimed.build_requests((0,), gpus=1)["requests"]
    for attribute, pods in (("dra.net/numaNode", 0), ("example.com/none", 0), (ROOT, 1)):
        demand = read_demand(known, {"requests": requests, "constraints": [{"matchAttribute": attribute}]})
        assert known.count_pairs("n1", demand).pods == pods  # GPUs have neither of the first two


def test_too_many_compared_attributes_refuse_no_node(known):
    requests = claimed.build_requests((0,), gpus=1)["requests"]
    for number in range(20):
        constraint = {"matchAttribute": f"example.com/a{number}"}
        demand = read_demand(known, {"requests": requests, "constraints": [constraint]}, f"t{number}")
    assert known.count_pairs("n1", demand) == device_pairs.UNLIMITED


def test_a_value_of_an_unknown_type_matches_every_other(known):
    demand = read_rails(known, (1,))
    hold_gpus(known, "others", 2, 2)
    trees = devices.build_slices("n1")
    for device in trees[1]["spec"]["devices"]:
        if device["name"] == "gpu-0":
            device["attributes"][ROOT] = {"strings": ["pci0000:10", "pci0000:20"]}  # KEP-5491
    for offered in devices.read_slices(*trees):
        known.slice_sink.upsert(offered)
    assert known.count_pairs("n1", demand).pods == 1


def test_a_name_without_a_domain_belongs_to_the_driver():
    trees = devices.build_slices("n1")
    trees[0]["spec"]["devices"] = [
        {"name": "a", "attributes": {"group": {"int": 7}}},
        {"name": "b", "attributes": {"dra.net/group": {"int": 7}}},
        {"name": "c", "attributes": {"group": {"string": "7"}}},
        {"name": "d"},
    ]
    known = inventory.slices.SliceIndex()
    known.replace(devices.read_slices(trees[0]))
    offered = [known.devices[device] for device in known.ids_by_node["n1"]]
    values = device_pairs.number_values(offered, ("dra.net/group", "example.com/group"))
    assert dict(zip([device.id.device for device in offered], values, strict=True)) == {
        "a": (0, None),
        "b": (0, None),
        "c": (1, None),
        "d": (None, None),
    }


KINDS = (GPU, NIC, *(device_pairs.DeviceKind(NIC.device_class, (name,)) for name in ("r0", "r1")))
NAMES = ((GPU.device_class, claimed.GPU), (NIC.device_class, "r0"), (NIC.device_class, "r1"))
PAIRS = st.lists(
    st.builds(
        lambda nic, gpus: device_pairs.Pair(
            ROOT, (device_pairs.PairedDevices(GPU, gpus), device_pairs.PairedDevices(nic, 1))
        ),
        st.sampled_from(KINDS[2:]),
        st.integers(1, 2),
    ),
    min_size=1,
    max_size=2,
)
FREE = st.lists(
    st.builds(device_pairs.FreeDevice, st.sampled_from(NAMES), st.fixed_dictionaries({ROOT: st.integers(0, 1)})),
    max_size=7,
)


def has_room(free, pairs):
    """Try every assignment of pairs to values."""
    for values in itertools.product((0, 1), repeat=len(pairs)):
        left = list(free)
        if all(take(left, value, paired) for value, pair in zip(values, pairs, strict=True) for paired in pair.devices):
            return True
    return False


def take(left, value, paired):
    fitting = [device for device in left if device.values[ROOT] == value and paired.kind.accepts(device.names)]
    for device in fitting[: paired.number]:
        left.remove(device)
    return len(fitting) >= paired.number


@given(free=FREE, pairs=PAIRS)
def test_the_number_of_pods_equals_that_of_an_exhaustive_search(free, pairs):
    exact = next(pods for pods in itertools.count() if not has_room(free, pairs * (pods + 1)))
    counted = device_pairs.count_pods(free, sorted(pairs))
    assert counted.pods == exact
    assert (counted.missing is None) == (exact > 0)
