"""Fields of claims: the extender either reads a field, or keeps the node and leaves the decision to the allocator."""

import copy
import pathlib

import devices
import msgspec
import pytest
import yaml
from placing import build_cluster, create_assumed_pods, policy

from railwright.fabric import node_views, resources, views
from railwright.fabric.claims import inventory, objects, slices
from railwright.fabric.placement import engine, scheduling_request

NIC = "pci-0000-10-1b-0"
RAIL = devices.RAIL_RESOURCES[0]
TAINT = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}
FIELDS = yaml.safe_load(pathlib.Path("tests/data/claim-fields.yaml").read_text())
VIEWS = {
    "AllocationResult": objects.AllocationResult,
    "CELDeviceSelector": objects.CelSelector,
    "CapacityRequestPolicy": objects.CapacityPolicy,
    "CapacityRequestPolicyRange": objects.CapacityRange,
    "Device": objects.Device,
    "DeviceAllocationResult": objects.DeviceAllocation,
    "DeviceAttribute": objects.Attribute,
    "DeviceCapacity": objects.Capacity,
    "DeviceClaim": objects.DeviceClaim,
    "DeviceClassSpec": objects.DeviceClassSpec,
    "DeviceConstraint": objects.DeviceConstraint,
    "DeviceDerivedAttribute": objects.DerivedAttribute,
    "DeviceRequest": objects.DeviceRequest,
    "DeviceRequestAllocationResult": objects.DeviceResult,
    "DeviceSelector": objects.DeviceSelector,
    "DeviceSubRequest": objects.ExactDeviceRequest,
    "DeviceTaint": node_views.Taint,
    "DeviceTaintRuleSpec": objects.DeviceTaintRuleSpec,
    "DeviceTaintSelector": objects.DeviceTaintSelector,
    "DeviceToleration": views.Toleration,
    "ExactDeviceRequest": objects.ExactDeviceRequest,
    "ResourcePool": objects.ResourcePool,
    "ResourceSliceSpec": objects.ResourceSliceSpec,
}


@pytest.mark.parametrize("name", FIELDS)
def test_the_listed_fields_are_those_of_the_views(name):
    read = {field for field, decision in FIELDS[name].items() if decision == "read"}
    known = {field.encode_name for field in msgspec.structs.fields(VIEWS[name])}
    assert read == known & FIELDS[name].keys()


class Case:
    """A node whose first NIC has a rail, and a pod that requests one by a claim."""

    def __init__(self, request):
        tree = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "96", "pods": "110"}}}
        self.cluster = build_cluster([msgspec.convert(tree, node_views.Node)])
        self.cluster.change_devices(lambda known: known.class_sink.replace(devices.read_classes(*devices.CLASSES)))
        self.slices = devices.build_slices("n1")
        self.nic = next(device for device in self.slices[0]["spec"]["devices"] if device["name"] == NIC)
        self.claim = devices.build_claim("c", {"nic": "rail0"}, pod_uid="u")
        self.claim["spec"]["devices"]["requests"] = [{"name": "nic", **request}]

    def hold(self, name="other", *, result=None):
        tree = devices.build_claim(name, {"nic": "rail0"}, allocated=[("dra.net", "n1", NIC)])
        tree["status"]["allocation"]["devices"]["results"][0] |= result or {}
        self.cluster.upsert_claim(devices.read_claim(tree))

    def choose(self):
        """Return the nodes that the filter keeps, and the reason that it gives for others."""
        self.cluster.change_devices(lambda known: known.slice_sink.replace(devices.read_slices(*self.slices)))
        self.cluster.upsert_claim(devices.read_claim(self.claim))
        tree = {
            "metadata": {"name": "p", "namespace": "train", "uid": "u", "labels": {"railwright.io/fabric": "roce"}},
            "spec": {"containers": [{"name": "c"}], "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]},
        }
        pod = msgspec.convert(tree, views.Pod)
        self.cluster.upsert_pod(pod)
        requests = self.cluster.compute_requests(pod, resources.compute_requests(pod.spec))
        pairs = self.cluster.read_pairs(self.cluster.pods["u"].claims)
        request = scheduling_request.build_request(
            pod, policy(required=True), {}, ["n1"], requests=requests, pairs=pairs
        )
        return list(engine.PlacementEngine(self.cluster, create_assumed_pods()).filter(request).feasible)


def exactly(**more):
    return {"exactly": {"deviceClassName": "rail0", **more}}


def share(bandwidth="100G", number=1):
    return {"shareID": f"share-{number}", "consumedCapacity": {"bandwidth": bandwidth}}


@pytest.mark.parametrize(
    ("request_of_pod", "held", "is_feasible"),
    [
        (exactly(), {}, False),
        (exactly(), {"adminAccess": True}, True),
        (exactly(), share() | {"adminAccess": True}, True),
        (
            exactly(),
            share(),
            True,
        ),  # the allocator counts only allocations without a share as those of the whole device
        (exactly(allocationMode="All"), {}, False),  # takes at least one
        (exactly(allocationMode="Later", count=9), {}, True),
        ({"later": {}}, {}, True),
    ],
    ids=["held", "admin", "shared admin", "share of an exclusive device", "all", "unknown mode", "unknown kind"],
)
def test_a_rail_that_another_claim_holds_is_busy(request_of_pod, held, is_feasible):
    case = Case(request_of_pod)
    case.hold(result=held)
    assert case.choose() == (["n1"] if is_feasible else [])


# --- devices for several claims (KEP-5075) -------------------------------------------------------


@pytest.mark.parametrize(
    ("policy_of_requests", "held", "is_feasible"),
    [
        ({"default": "100G"}, ["100G"], True),
        ({"default": "100G", "validRange": {"min": "100G"}}, ["100G", "200G"], True),
        ({"default": "100G", "validRange": {"min": "100G"}}, ["200G", "200G"], False),
        ({"default": "200G", "validValues": ["100G", "200G"]}, ["200G", "100G"], True),
        ({"default": "200G", "validValues": ["100G", "200G"]}, ["200G", "200G"], False),
        (None, ["400G"], False),  # without a policy, a request takes all unless it says otherwise
        (None, ["100G"], True),
    ],
)
def test_a_shared_device_is_busy_without_room_for_the_least_claim(policy_of_requests, held, is_feasible):
    case = Case(exactly())
    case.nic["allowMultipleAllocations"] = True
    case.nic["capacity"] = {"bandwidth": {"value": "400G", "requestPolicy": policy_of_requests}}
    if policy_of_requests is None:
        del case.nic["capacity"]["bandwidth"]["requestPolicy"]
    for number, bandwidth in enumerate(held):
        case.hold(f"other-{number}", result=share(bandwidth, number))
    assert case.choose() == (["n1"] if is_feasible else [])


def test_a_shared_device_counts_for_each_claim_it_has_room_for():
    known = inventory.Inventory()
    known.class_sink.replace(devices.read_classes(*devices.CLASSES))
    trees = devices.build_slices("n1")
    nic = next(device for device in trees[0]["spec"]["devices"] if device["name"] == NIC)
    nic["allowMultipleAllocations"] = True
    nic["capacity"] = {"bandwidth": {"value": "400G", "requestPolicy": {"validRange": {"min": "50G"}}}}
    known.slice_sink.replace(devices.read_slices(*trees))
    tree = devices.build_claim("c", {"nic": "rail0"}, pod_uid="u", allocated=[("dra.net", "n1", NIC)])
    tree["status"]["allocation"]["devices"]["results"][0] |= share("100G")
    claim = devices.read_claim(tree)
    for count, change in [(0, known.claim_sink.remove), (2, known.claim_sink.upsert), (0, known.claim_sink.remove)]:
        change(claim)
        counts = known.count_devices("n1")
        assert (counts.allocatable[RAIL], counts.allocated.get(RAIL, 0)) == (8000, 1000 * count)
    assert known.count_devices("n1").allocatable[devices.RAIL_RESOURCES[1]] == 1000


def test_a_shared_device_without_capacity_has_room():
    device = msgspec.convert({"name": "d", "allowMultipleAllocations": True}, objects.Device)
    assert slices.count_shares(device, [{}] * 3) == slices.MAX_SHARES
    tree = {"name": "d", "allowMultipleAllocations": True, "capacity": {"x": {"value": "0"}}}
    assert slices.count_shares(msgspec.convert(tree, objects.Device)) == slices.MAX_SHARES


# --- alternatives --------------------------------------------------------------------------------


def test_a_request_with_alternatives_counts_what_each_of_them_takes():
    kinds = [{"name": f"k{number}", "deviceClassName": f"rail{number}"} for number in range(2)]
    case = Case({"firstAvailable": kinds})
    case.hold()
    assert case.choose() == ["n1"]
    case = Case({"firstAvailable": [kinds[0] | {"count": 2}, kinds[0] | {"name": "k2"}]})
    case.hold()
    assert case.choose() == [], "either takes one of the rail"


# --- taints --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tolerations", "is_feasible"),
    [
        (None, False),
        ([{"key": TAINT["key"], "operator": "Exists"}], True),
        ([{"operator": "Exists"}], True),
        ([{"key": TAINT["key"], "value": "yes"}], True),
        ([{"key": TAINT["key"], "value": "no"}], False),
        ([{"operator": "Exists", "effect": "NoExecute"}], False),
    ],
)
def test_a_tolerated_device_is_free(tolerations, is_feasible):
    case = Case(exactly(tolerations=tolerations) if tolerations else exactly())
    case.nic["taints"] = [TAINT]
    assert case.choose() == (["n1"] if is_feasible else [])
    case.hold()
    assert case.choose() == [], "a tolerated device that another claim holds is busy"


@pytest.mark.parametrize("tolerations", [[], [{"operator": "Exists"}]])
def test_a_pods_own_tainted_device_keeps_the_node_feasible(tolerations):
    """The allocator does not allocate it again: the taint may be newer than the allocation."""
    case = Case(exactly(tolerations=tolerations))
    case.nic["taints"] = [TAINT]
    own = devices.build_claim("c", {"nic": "rail0"}, pod_uid="u", allocated=[("dra.net", "n1", NIC)])
    case.claim["status"] = own["status"]
    assert case.choose() == ["n1"]


def test_pairs_count_tainted_devices_that_are_tolerated():
    tolerations = [{"operator": "Exists"}]
    case = Case(exactly(tolerations=tolerations))
    case.nic["taints"] = [TAINT]
    gpu = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    case.claim["spec"]["devices"]["requests"].append(gpu)
    case.claim["spec"]["devices"]["constraints"] = [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]
    assert case.choose() == ["n1"]


def test_a_constraint_on_a_derived_attribute_is_ignored():
    attribute = "resource.kubernetes.io/pcieRoot"
    for derived, nodes in (([], []), ([{"name": attribute, "expression": "'x'"}], ["n1"])):
        case = Case(exactly(derivedAttributes=derived))
        del case.nic["attributes"][attribute]
        gpu = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        case.claim["spec"]["devices"]["requests"].append(gpu)
        case.claim["spec"]["devices"]["constraints"] = [{"matchAttribute": attribute}]
        assert case.choose() == nodes


# --- devices of several nodes ----------------------------------------------------------------------


def place_on_several(case, where):
    """Offer the NIC in a pool of several nodes instead of the node's own."""
    own = case.slices[0]["spec"]
    own["devices"].remove(case.nic)
    shared = copy.deepcopy(case.slices[0])
    shared["metadata"]["name"] = "network"
    shared["spec"] = {"driver": "dra.net", "pool": {"name": "network"}, "devices": [case.nic], **where}
    return shared


SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}


@pytest.mark.parametrize("where", [{"allNodes": True}, {"nodeSelector": SELECTOR}], ids=["all", "selector"])
@pytest.mark.parametrize("is_paired", [False, True])
def test_a_device_of_several_nodes_keeps_each_node_feasible(where, is_paired):
    case = Case(exactly())
    if is_paired:
        gpu = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        case.claim["spec"]["devices"]["requests"].append(gpu)
        case.claim["spec"]["devices"]["constraints"] = [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]
    shared = place_on_several(case, where)
    assert case.choose() == []
    case.slices.append(shared)
    assert case.choose() == ["n1"]
    case.slices.pop()
    assert case.choose() == []
    case.nic |= where
    shared["spec"] = {key: value for key, value in shared["spec"].items() if key not in where}
    case.slices.append(shared | {"spec": shared["spec"] | {"perDeviceNodeSelection": True}})
    assert case.choose() == ["n1"]
    assert not case.cluster.nodes["n1"].allocatable.get(RAIL), "gauges and the dashboard count devices of nodes"
