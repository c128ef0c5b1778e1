"""Reports about rails whose devices are in ResourceSlices: taints, links, and NICs named as slices name them."""

import copy

import claimed
import devices
import placing
import pytest
import reporting
from reporting import STATE, condition, port_down

from extender import state as states
from railwright.cluster import policies
from railwright.fabric.policy import claimed_rails, model

POLICY = """\
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
fabrics:
  f:
    transport: {transport}
    claims: {{deviceClass: dranet, railAttribute: resource.kubernetes.io/pcieRoot}}
    rails: [{{name: rail0, claim: {{value: "pci0000:10"}}}}, {{name: rail1, claim: {{value: "pci0000:20"}}}}]
"""
SECOND = "pci-0000-20-1b-0"


class Cluster(reporting.ReportedCluster):
    """A node whose rails are in slices."""

    def __init__(self, transport="roce"):
        policy = policies.read(POLICY.format(transport=transport))
        assert isinstance(policy, model.Policy), policy
        super().__init__([placing.node("n", rails_each=0)], policy)
        classes = devices.read_classes(devices.build_class("dranet", 'device.driver == "dra.net"'))
        named = claimed_rails.list_claim_resources(policy.document)
        self.state.change_devices(
            lambda known: known.class_sink.replace(classes) | known.replace_claim_resources(named)
        )
        self.offer()

    def offer(self, attributes=None, **more):
        """Publish the slices of the node, with further attributes of the second NIC."""
        (nics, _) = devices.build_slices("n", **more)
        for device in nics["spec"]["devices"]:
            if device["name"] == SECOND:
                device["attributes"] |= attributes or {}
        self.state.change_devices(lambda known: known.slice_sink.replace(devices.read_slices(nics)))

    def list_states(self):
        return [(row.rail, row.source, row.is_held) for row in self.state.health.list_states("n", "f")]


def test_a_nic_is_known_by_the_attributes_of_its_device():
    known = Cluster()
    known.offer({"dra.net/ifName": {"string": "ens2"}, "dra.net/pciAddress": {"string": "0000:20:1b.0"}})
    for name in (devices.RDMA_DEVICES[1], "ens2", "0000:20:1b.0", "0000:20:1b", SECOND):
        known.report("n", condition(STATE, f"NIC:{name} x Recommended Action=NONE"))
        assert known.list_rails("n", "f") == ["rail1 excluded"], name
        known.report("n")
        known.wait(9999)
    known.report("n", condition(STATE, port_down("mlx5_1")))
    assert known.list_rails("n", "f") == []


def test_a_tainted_rail_is_avoided_until_the_hold_after_its_taint_has_ended():
    known = Cluster()
    known.offer(taints={SECOND: "NoSchedule"})
    assert known.list_states() == [("rail1", "DeviceTainted", False)]
    assert known.state.health.list_states("n", "f")[0].detail == (
        "device pci-0000-20-1b-0 has the taint example.com/broken:NoSchedule"
    )
    known.offer()
    assert known.list_states() == [("rail1", "DeviceTainted", True)]
    known.wait(60)
    assert known.list_states() == []


def test_a_device_that_left_its_slice_is_missing():
    known = Cluster()
    known.offer(without=[SECOND])
    assert known.list_states() == [("rail1", "DeviceMissing", False)]


def test_no_device_is_missing_while_its_driver_writes_the_slices_of_a_pool():
    known = Cluster()
    (nics, _) = devices.build_slices("n", generation=2)
    first, second = copy.deepcopy(nics), copy.deepcopy(nics)
    second["metadata"]["name"] += "-2"
    for half, names in ((first, slice(3)), (second, slice(3, None))):
        half["spec"]["devices"] = nics["spec"]["devices"][names]
        half["spec"]["pool"]["resourceSliceCount"] = 2
        known.state.change_devices(
            lambda inventory, half=half: inventory.slice_sink.upsert(devices.read_slices(half)[0])
        )
        assert known.list_states() == []
    without = copy.deepcopy(first)
    without["spec"] |= {"pool": nics["spec"]["pool"] | {"generation": 3, "resourceSliceCount": 2}}
    without["spec"]["devices"] = []
    known.state.change_devices(lambda inventory: inventory.slice_sink.upsert(devices.read_slices(without)[0]))
    assert known.list_states() == []
    without["spec"]["pool"]["resourceSliceCount"] = 1
    known.state.change_devices(lambda inventory: inventory.slice_sink.upsert(devices.read_slices(without)[0]))
    assert known.list_states() == [("rail0", "DeviceMissing", False), ("rail1", "DeviceMissing", False)]


@pytest.mark.parametrize(
    ("transport", "attributes", "expected"),
    [
        ("roce", {"dra.net/state": {"string": "down"}}, [("rail1", "LinkDown", False)]),
        ("roce", {"dra.net/state": {"string": "up"}}, []),
        ("roce", {}, []),
        ("infiniband", {"dra.net/state": {"string": "down"}}, []),
        ("roce", {"dra.net/state": {"string": "down"}, "dra.net/encapsulation": {"string": "infiniband"}}, []),
    ],
    ids=["down", "up", "in a pod", "IPoIB of an InfiniBand fabric", "IPoIB"],
)
def test_a_link_that_is_down_by_its_slice_is_reported_where_rdma_needs_it(transport, attributes, expected):
    known = Cluster(transport)
    known.offer(attributes)
    assert known.list_states() == expected


def test_no_device_is_missing_after_rails_change_between_claims_and_device_plugins():
    known, of_claims, of_plugins = states.State(assume_seconds=30), claimed.policy(), placing.policy()
    cluster = known.cluster
    cluster.upsert_node(placing.node("n"))
    classes, slices = devices.read_classes(devices.NIC_CLASS), devices.read_slices(*devices.build_slices("n"))
    cluster.change_devices(
        lambda inventory: inventory.class_sink.replace(classes) | inventory.slice_sink.replace(slices)
    )
    for policy in (of_claims, of_plugins, of_claims):
        known.apply_policy(policy)
        assert not cluster.health.list_states("n", "roce")
