"""Events of slices, claims, classes, taint rules and nodes may come in any order: the last objects alone count."""

import copy
import itertools

import devices
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placing import pod

from railwright.fabric import node_views
from railwright.fabric.claims import claim_index, objects
from railwright.fabric.placement.state import cluster_state

NODES = ("n1", "n2")
NICS = tuple(f"pci-0000-{root}-1b-0" for root in devices.ROOTS[:2])


def read_node(name, label):
    tree = {"metadata": {"name": name, "labels": {"label": label}}, "status": {"allocatable": {"cpu": "96"}}}
    return msgspec.convert(tree, node_views.Node)


def withdraw(tree, names):
    """Return a slice whose driver has withdrawn the attributes of some devices."""
    changed = copy.deepcopy(tree)
    for device in changed["spec"]["devices"]:
        if device["name"] in names:
            device["attributes"] = {}
    return changed


def build_rule(device):
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    tree = {
        "metadata": {"name": "broken"},
        "spec": {"deviceSelector": {"pool": "n1", "device": device}, "taint": taint},
    }
    return msgspec.convert(tree, objects.DeviceTaintRule)


def hold(node, nic):
    return devices.read_claim(
        devices.build_claim(f"{node}-{nic}", {"nic": "rail0"}, allocated=[("dra.net", node, nic)])
    )


class Last:
    """The objects that exist, and the events that show them to a cluster state."""

    def __init__(self):
        self.nodes = {name: read_node(name, "") for name in NODES}
        self.slices = {tree["metadata"]["name"]: tree for name in NODES for tree in devices.build_slices(name)}
        self.classes = {tree["metadata"]["name"]: tree for tree in devices.CLASSES}
        self.claims = {}
        self.rules = {}

    def build(self):
        """Return a cluster state to which the objects are listed once."""
        cluster = cluster_state.ClusterState()
        cluster.replace_nodes([*self.nodes.values()])
        cluster.change_devices(lambda known: known.class_sink.replace(devices.read_classes(*self.classes.values())))
        cluster.change_devices(lambda known: known.slice_sink.replace(devices.read_slices(*self.slices.values())))
        cluster.change_devices(lambda known: known.taint_rule_sink.replace([*self.rules.values()]))
        cluster.replace_claims([*self.claims.values()])
        return cluster

    def set_slice(self, cluster, tree):
        self.slices[tree["metadata"]["name"]] = tree
        cluster.change_devices(lambda known: known.slice_sink.upsert(devices.read_slices(tree)[0]))

    def remove_slice(self, cluster, tree):
        self.slices.pop(tree["metadata"]["name"], None)
        cluster.change_devices(lambda known: known.slice_sink.remove(devices.read_slices(tree)[0]))

    def set_claim(self, cluster, claim):
        self.claims[claim.metadata.name] = claim
        cluster.upsert_claim(claim)

    def remove_claim(self, cluster, claim):
        self.claims.pop(claim.metadata.name, None)
        cluster.remove_claim(claim)

    def list_claims(self, cluster):
        cluster.replace_claims([*self.claims.values()])

    def set_class(self, cluster, tree):
        self.classes[tree["metadata"]["name"]] = tree
        cluster.change_devices(lambda known: known.class_sink.upsert(devices.read_classes(tree)[0]))

    def remove_class(self, cluster, tree):
        self.classes.pop(tree["metadata"]["name"], None)
        cluster.change_devices(lambda known: known.class_sink.remove(devices.read_classes(tree)[0]))

    def set_rule(self, cluster, device):
        self.rules["broken"] = build_rule(device)
        cluster.change_devices(lambda known: known.taint_rule_sink.upsert(self.rules["broken"]))

    def remove_rule(self, cluster):
        self.rules.clear()
        cluster.change_devices(lambda known: known.taint_rule_sink.remove(build_rule("")))

    def set_node(self, cluster, name, label):
        self.nodes[name] = read_node(name, label)
        cluster.upsert_node(self.nodes[name])

    def remove_node(self, cluster, name):
        self.nodes.pop(name, None)
        cluster.remove_node(name)


SLICES = [tree for name in NODES for tree in devices.build_slices(name)[:1]]
CLASSES = devices.CLASSES[1:3]
EVENTS = [
    *((Last.set_slice, tree) for tree in SLICES),
    *((Last.set_slice, withdraw(tree, NICS)) for tree in SLICES),
    *((Last.set_slice, withdraw(SLICES[0], [nic])) for nic in NICS),
    *((Last.remove_slice, tree) for tree in SLICES),
    *(
        (change, hold(*held))
        for change in (Last.set_claim, Last.remove_claim)
        for held in itertools.product(NODES, NICS)
    ),
    (Last.list_claims,),
    *((change, tree) for change in (Last.set_class, Last.remove_class) for tree in CLASSES),
    *((Last.set_rule, nic) for nic in NICS),
    (Last.remove_rule,),
    *((Last.set_node, name, label) for name in NODES for label in ("", "x")),
    (Last.remove_node, "n1"),
]
RESTORING = [(Last.set_slice, tree) for tree in SLICES]
HOLDING = [(Last.set_slice, withdraw(tree, NICS)) for tree in SLICES] + [
    event for event in EVENTS if event[0] is Last.set_claim
]
RELEASING = [event for event in EVENTS if event[0] is Last.remove_claim]


def describe(cluster):
    """Return what a decision reads of each node."""
    known = cluster.claimed.inventory
    return {
        name: (
            node,
            cluster.list_claimable(name),
            cluster.get_free(name),
            known.count_devices(name),
            known.count_by_numa_node(name),
            [holder.claim.metadata.name for holder in known.list_holders(name)],
        )
        for name, node in cluster.nodes.items()
    }


@settings(deadline=None)
@given(
    earlier=st.lists(st.sampled_from(HOLDING), max_size=6),
    later=st.lists(st.sampled_from(EVENTS), max_size=8),
    final=st.integers(0, len(RELEASING)).flatmap(lambda some: st.permutations([*RESTORING, *RELEASING[:some]])),
)
def test_any_order_of_events_gives_the_state_of_a_new_list(earlier, later, final):
    """The state begins with what the earlier events left. At the end all attributes are published again."""
    last = Last()
    for change, *arguments in earlier:
        change(last, cluster_state.ClusterState(), *arguments)
    cluster = last.build()
    for change, *arguments in [*later, *final]:
        change(last, cluster, *arguments)
        describe(cluster)  # what is computed on demand must not outlive the next event
    assert describe(cluster) == describe(last.build())


@pytest.mark.parametrize("order", [*itertools.permutations(["slice", "claim", "heartbeat"])])
def test_a_device_counts_again_whichever_comes_first_of_its_attribute_and_its_release(order):
    """The state begins while a claim holds a device whose driver has withdrawn the attributes that name its rail."""
    last = Last()
    last.slices["n1-dra.net"] = withdraw(SLICES[0], NICS[:1])
    last.claims["held"] = hold("n1", NICS[0])
    cluster = last.build()
    assert not cluster.nodes["n1"].allocatable.get(devices.RAIL_RESOURCES[0])
    events = {
        "slice": lambda: last.set_slice(cluster, SLICES[0]),
        "claim": lambda: last.remove_claim(cluster, hold("n1", NICS[0])),
        "heartbeat": lambda: last.set_node(cluster, "n1", "x"),
    }
    for event in order:
        events[event]()
    assert cluster.nodes["n1"].allocatable[devices.RAIL_RESOURCES[0]] == 1000


def test_a_held_device_gets_its_name_once_the_driver_publishes_its_attribute():
    last = Last()
    last.slices["n1-dra.net"] = withdraw(SLICES[0], NICS[:1])
    last.claims["held"] = hold("n1", NICS[0])
    cluster = last.build()
    last.set_slice(cluster, SLICES[0])
    rail = devices.RAIL_RESOURCES[0]
    assert (cluster.nodes["n1"].allocatable[rail], cluster.get_free("n1")[rail]) == (1000, 0)


def test_a_claim_without_effect_on_a_node_keeps_its_class_object():
    last = Last()
    cluster = last.build()
    before = cluster.nodes["n1"], cluster.topology_version
    last.set_claim(cluster, hold("n1", NICS[0]))
    cluster.upsert_pod(pod("p"))
    assert (cluster.nodes["n1"], cluster.topology_version) == before
    assert (
        claim_index.format_key(cluster.claimed.inventory.list_holders("n1")[0].claim.metadata) == f"train/n1-{NICS[0]}"
    )
