"""Placement on devices of claims: free devices and nodes with room, in any order of events."""

import copy
import itertools

import devices
import msgspec
import placing
import pytest
from claimed import (
    GPU,
    RAIL,
    add_slices,
    add_template,
    build_claim,
    build_claimed_node,
    build_claiming_pod,
    build_request,
    build_template,
    get_sink,
    name_devices,
)
from hypothesis import given
from hypothesis import strategies as st
from placing import build_cluster, build_node, explain, score_once

from extender import state as states
from railwright.fabric import node_views
from railwright.fabric.placement import engine
from railwright.fabric.placement.state import cluster_state, pod_usage

NAMES = (GPU, *RAIL)


@pytest.fixture
def cluster():
    cluster = build_cluster(
        [build_claimed_node("n1", "a"), build_claimed_node("n2", "a"), build_node("plugin", "a", rails_each=1)]
    )
    name_devices(cluster)
    add_slices(cluster, "n1", "n2")
    add_template(cluster, "t", (0, 1))
    return cluster


def count_free(cluster, name="n1", resources=NAMES):
    return [cluster.get_free(name).get(resource, 0) // 1000 for resource in resources]


def list_requests(cluster, uid="uid-p"):
    return [cluster.pods[uid].requests.get(name, 0) // 1000 for name in NAMES]


def request(cluster, pod, **placement):
    return build_request(cluster, pod, ["n1", "n2", "plugin"], **placement)


def list_nodes_with_slots(cluster, pod, **placement):
    return placing.list_with_slots(cluster, request(cluster, pod, **placement))


def list_holders(cluster, asked, on="n1"):
    """Return the holders of the rail that a pod lacks on a node, from its explanation."""
    rows = {row.node: row for row in engine.PlacementEngine(cluster).explain_nodes(asked)}
    short = [cause.text for cause in rows[on].reasons if cause.text.startswith("rail") and " needed" in cause.text]
    return {text.partition(", held by ")[2] for text in short}


def hold_rails(cluster, name, rails, on="n1", **kinds):
    tree = build_claim(f"claim-{name}", rails, gpus=len(rails), pod_uid=f"uid-{name}", on=on, **kinds)
    cluster.change_devices(lambda known: known.claim_sink.upsert(devices.read_claim(tree)))
    return devices.read_claim(tree)


@pytest.mark.parametrize("removed", [None, "n1"])
def test_volcano_cannot_free_devices_that_claims_hold(cluster, removed):
    """Also of nodes that look alike, one of which is gone."""
    for name in ("n1", "n2"):
        hold_rails(cluster, name, range(4), on=name)
    asked = msgspec.structs.replace(request(cluster, build_claiming_pod("p")), is_announced=True)
    placer = engine.PlacementEngine(cluster)
    placer.score(asked)
    cluster.remove_node(removed or "plugin")
    full = placer.score(asked).view.get_class("n2")
    assert full is not None
    assert full.slot_numa_factors == ()


def test_a_pod_that_names_a_claim_requests_its_rails_before_the_claim_is_reserved(cluster):
    cluster.upsert_pod(build_claiming_pod("p", templates=(), claims=("own",)))
    assert list_requests(cluster) == [0] * 5
    claim = devices.read_claim(build_claim("own", (3,), gpus=1))
    cluster.change_devices(lambda known: known.claim_sink.upsert(claim))
    assert list_requests(cluster) == [1, 0, 0, 0, 1]
    cluster.change_devices(lambda known: known.claim_sink.remove(claim))
    assert list_requests(cluster) == [0] * 5


def test_a_bound_pod_uses_the_devices_of_its_claims_and_not_its_requests(cluster):
    """Any user can create a pod with a node name, any amounts, and claims without an allocation."""
    forged = build_claiming_pod("forged", on="n1")
    forged.spec.containers[0].resources.requests.update(dict.fromkeys(NAMES, "8"))
    cluster.upsert_pod(forged)
    assert list_requests(cluster, "uid-forged") == [10, 9, 9, 8, 8]
    assert count_free(cluster) == [8, 1, 1, 1, 1]
    cluster.change_devices(
        lambda known: known.claim_sink.upsert(
            devices.read_claim(build_claim("never", (2, 3), gpus=2, pod_uid="uid-forged"))
        )
    )
    assert count_free(cluster) == [8, 1, 1, 1, 1]
    claim = hold_rails(cluster, "forged", (0, 1))
    assert count_free(cluster) == [6, 0, 0, 1, 1]
    cluster.change_devices(lambda known: known.claim_sink.remove(claim))
    assert count_free(cluster) == [8, 1, 1, 1, 1]


def test_a_node_without_a_free_rail_of_the_claim_has_no_slot(cluster):
    hold_rails(cluster, "other", (1,))
    pod = build_claiming_pod("p")
    cluster.upsert_pod(pod)
    assert list_nodes_with_slots(cluster, pod) == ["n2"]
    assert list_holders(cluster, request(cluster, pod)) == {"claim train/claim-other"}


def test_a_pod_holds_the_rails_of_its_claim_before_it_is_bound(cluster):
    cluster.upsert_pod(build_claiming_pod("other"))
    hold_rails(cluster, "other", (1,))
    pod = build_claiming_pod("p")
    cluster.upsert_pod(pod)
    assert list_holders(cluster, request(cluster, pod)) == {"train/other"}


def test_a_claim_reserved_for_a_pod_of_another_namespace_does_not_place_that_pod(cluster):
    cluster.upsert_pod(build_claiming_pod("victim"))
    tree = build_claim("forged", (1,), gpus=1, pod_uid="uid-victim", on="n1")
    tree["metadata"]["namespace"] = "other"
    cluster.change_devices(lambda known: known.claim_sink.upsert(devices.read_claim(tree)))
    pod = build_claiming_pod("p")
    cluster.upsert_pod(pod)
    assert list_holders(cluster, request(cluster, pod)) == {"claim other/forged"}
    assert not pod_usage.find_nodes_of_pod(cluster, "uid-victim")


def test_a_resource_reported_by_kubelet_is_not_counted_from_slices_too(cluster):
    tree = {
        "metadata": {"name": "n1", "labels": {}},
        "status": {"allocatable": {GPU: "3", RAIL[0]: "0"}, "capacity": {GPU: "4", RAIL[0]: "1"}},
    }
    cluster.upsert_node(msgspec.convert(tree, node_views.Node))
    assert count_free(cluster, resources=(GPU, RAIL[0])) == [3, 1], "a plugin that is gone does not hide the slices"
    assert cluster.nodes["n1"].capacity[GPU] == 4000


def test_claims_without_named_rails_do_not_rule_out_nodes(cluster):
    hold_rails(cluster, "other", (0, 1, 2))
    pod = build_claiming_pod("p", templates=(), claims=("own",))
    cluster.upsert_pod(pod)
    any_nic = {"nic": (devices.NIC_CLASS, 'device.attributes["dra.net"].rdma == true')}
    cluster.change_devices(
        lambda known: known.claim_sink.upsert(devices.read_claim(build_claim("own", (), gpus=1, requests=any_nic)))
    )
    assert "n1" in list_nodes_with_slots(cluster, pod)


@pytest.mark.parametrize("missing", [{"taints": {"pci-0000-20-1b-0": "NoSchedule"}}, {"without": ["pci-0000-20-1b-0"]}])
def test_a_rail_is_dead_while_its_device_is_tainted_or_missing(cluster, missing):
    pod = build_claiming_pod("p")
    cluster.upsert_pod(pod)
    add_slices(cluster, "n1", generation=2, **missing)
    assert list_nodes_with_slots(cluster, pod) == ["n2"]
    add_slices(cluster, "n1", generation=3)
    assert list_nodes_with_slots(cluster, pod) == ["n1", "n2"]


def test_a_pod_of_the_gang_with_allocated_claims_counts_as_placed_before_its_binding(cluster):
    for name in ("a", "b"):
        cluster.upsert_pod(build_claiming_pod(name, group="g"))
    hold_rails(cluster, "a", (0, 1))
    decision = score_once(request(cluster, build_claiming_pod("b", group="g")), cluster)
    assert sum(decision.peers_by_leaf.values()) == 1
    assert decision.gang.unplaced == 1


LEAVES = {"a-0": "a", "a-1": "a", "b-0": "b", "b-1": "b"}


@pytest.fixture
def four_nodes():
    four_nodes = build_cluster([build_claimed_node(name, leaf) for name, leaf in LEAVES.items()])
    name_devices(four_nodes)
    add_slices(four_nodes, *LEAVES)
    add_template(four_nodes, "t", (0, 1))
    return four_nodes


def test_a_gang_with_claims_is_planned_on_a_leaf_with_the_claimed_devices(four_nodes):
    tree = build_claim("gpus", (), gpus=7, pod_uid="uid-gpus", on="a-0")
    four_nodes.change_devices(lambda known: known.claim_sink.upsert(devices.read_claim(tree)))
    pods = [build_claiming_pod(name, group="g") for name in ("p-0", "p-1")]
    for peer in pods:
        four_nodes.upsert_pod(peer)
    decision = score_once(build_request(four_nodes, pods[0], list(LEAVES)), four_nodes)
    assert [leaf[0] for leaf in decision.plan.leaves] == ["b"]


def test_a_pod_that_takes_any_rail_fits_a_node_with_busy_first_rails(four_nodes):
    """railwright.io/rails in a number: any NIC of the class, which the allocator chooses."""
    template = build_template("any", (0,))
    _gpu, rail = template.spec.spec.devices["requests"]
    del rail["exactly"]["selectors"]
    four_nodes.change_devices(lambda known: known.template_sink.upsert(template))
    for number in range(2):
        claim = devices.read_claim(build_claim(f"rail{number}", (number,), gpus=0, pod_uid=f"uid-{number}", on="a-0"))
        four_nodes.change_devices(lambda known, claim=claim: known.claim_sink.upsert(claim))
    pod = build_claiming_pod("p", templates=("any",))
    four_nodes.upsert_pod(pod)
    request = build_request(four_nodes, pod, list(LEAVES))
    assert request.needs == ()
    decision = score_once(request, four_nodes)
    assert decision.plan.bandwidth == 1.0
    assert explain(decision)["a-0"].terms["rails"][0] == 1.0
    assert decision.scores["a-0"] >= decision.scores["a-1"]


# --- each device counts once, whatever the order in which pods, claims and bindings are observed --------------


USED = {GPU: 3, RAIL[0]: 1, RAIL[1]: 1, RAIL[2]: 1, RAIL[3]: 0}
OFFERED = {GPU: 8, **dict.fromkeys(RAIL, 1)}
FIRST, SECOND = {GPU: 2, RAIL[0]: 1, RAIL[1]: 1}, {GPU: 1, RAIL[2]: 1}

# what each watch and the scheduler deliver, each in its own order
POD = ("pod", "bound", "pod deleted")
TEMPLATES = ("template t", "template u")
CLAIM_T = ("claim t", "allocated t", "deleted t")
CLAIM_U = ("claim u", "allocated u", "deleted u")
SCHEDULER = ("assumed",)
ENDS = {"pod deleted", "deleted t", "deleted u"}


class ExtenderState:
    """The extender's state with a node, and a pod of two claims that is scheduled there."""

    def __init__(self) -> None:
        self.state = states.State()
        self.state.cluster.upsert_node(build_claimed_node("n1"))
        name_devices(self.state.cluster)
        add_slices(self.state.cluster, "n1")
        self.engine = engine.PlacementEngine(self.state.cluster)
        self.pods, self.claims = states.PodSink(self.state), get_sink(self.state, "ResourceClaim")
        self.templates = get_sink(self.state, "ResourceClaimTemplate")
        self.seen: set[str] = set()

    def pod(self, on=""):
        return build_claiming_pod("p", on=on, templates=("t", "u"))

    def claim(self, name, on=""):
        rails, gpus, first = ((0, 1), 2, 0) if name == "t" else ((2,), 1, 2)
        tree = build_claim(name, rails, gpus=gpus, pod_uid="uid-p", on=on, first_gpu=first)
        return devices.read_claim(tree)

    def handle(self, event: str) -> None:
        self.seen.add(event)
        kind, _, name = event.partition(" ")
        match kind:
            case "template":
                self.templates.upsert(build_template(name, (0, 1) if name == "t" else (2,)))
            case "claim":
                self.claims.upsert(self.claim(name))
            case "allocated":
                self.claims.upsert(self.claim(name, "n1"))
            case "deleted":
                self.claims.remove(self.claim(name, "n1"))
            case "bound":
                self.pods.upsert(self.pod("n1"))
            case "assumed":
                self.assume()
            case "pod" if name:
                self.pods.remove(self.pod("n1"))
            case "pod":
                self.pods.upsert(self.pod())

    def assume(self) -> None:
        pod = self.pod()
        bound = self.state.cluster.pods.get("uid-p")
        if bound is not None and bound.node:
            return  # as the extender does: the announcement is late
        requests = self.state.cluster.compute_requests(pod)
        self.state.assumed.assume(placing.build_assumed_pod(pod, "n1", requests=requests))

    def count_used(self):
        """Return the devices in use by the node's class, for another pod."""
        other = build_claiming_pod("other", templates=("all",))
        self.templates.upsert(build_template("all", (0, 1, 2, 3)))
        request = build_request(self.state.cluster, other, ["n1"])
        index = self.engine.get_index(request)
        free = [row.free for row in index.find_classes(["n1"])[0].facts.devices]
        by_name = dict(zip(index.kind.demand.names, free, strict=True))
        return {name: OFFERED[name] - by_name[name] // 1000 for name in USED}

    def expect_used(self):
        """Return the expected devices in use: of allocated claims, and of an assumed pod's other known claims."""
        used = dict.fromkeys(USED, 0)
        is_announced = "assumed" in self.seen and "bound" not in self.seen
        for name, amounts in (("t", FIRST), ("u", SECOND)):
            is_held = f"allocated {name}" in self.seen and f"deleted {name}" not in self.seen
            is_known = f"template {name}" in self.seen
            if is_held or (is_announced and is_known):
                used = {resource: amount + amounts.get(resource, 0) for resource, amount in used.items()}
        return used


@st.composite
def draw_orders(draw):
    """Draw an interleaving of the watches' events. The pod comes first, deletions come last.

    Each claim is observed after its template, of which it is made.
    """
    streams = [list(POD[1:]), [TEMPLATES[0], *CLAIM_T], [TEMPLATES[1], *CLAIM_U], list(SCHEDULER)]
    begins = [[event for event in stream if event not in ENDS] for stream in streams]
    ends = draw(st.permutations(sorted(ENDS)))
    order = ["pod"]
    while any(begins):
        stream = draw(st.sampled_from([stream for stream in begins if stream]))
        order.append(stream.pop(0))
        if draw(st.booleans()):
            order.append(draw(st.sampled_from(order)) if order[-1] != "pod" else order[-1])
    return [*_drop_reversals(order), *ends]


def _drop_reversals(order):
    """Remove events that go back to an older version: a watch may repeat its newest event only."""
    events, newest = [], {}
    for event in order:
        stream = next(stream for stream in (POD, TEMPLATES, CLAIM_T, CLAIM_U, SCHEDULER) if event in stream)
        if stream is TEMPLATES or stream.index(event) >= newest.get(stream, 0):
            newest[stream] = stream.index(event)
            events.append(event)
    return events


@given(order=draw_orders())
def test_a_device_is_counted_once_in_any_order_of_events(order):
    world = ExtenderState()
    for event in order:
        world.handle(event)
        assert world.count_used() == world.expect_used(), order


# --- in any order of events, the last objects alone count -----------------------------------------------------


NODES = ("n1", "n2")
NICS = tuple(f"pci-0000-{root}-1b-0" for root in devices.ROOTS[:2])


def read_node(name, label):
    tree = {"metadata": {"name": name, "labels": {"label": label}}, "status": {"allocatable": {"cpu": "96"}}}
    return msgspec.convert(tree, node_views.Node)


def withdraw_attributes(tree, names):
    """Return a slice whose driver has withdrawn the attributes of some devices."""
    changed = copy.deepcopy(tree)
    for device in changed["spec"]["devices"]:
        if device["name"] in names:
            device["attributes"] = {}
    return changed


def hold_nic(node, nic):
    return devices.read_claim(
        devices.build_claim(f"{node}-{nic}", {"nic": "dranet"}, allocated=[("dra.net", node, nic)])
    )


class PublishedObjects:
    """The existing objects, and the events that deliver them to a cluster state."""

    def __init__(self):
        self.nodes = {name: read_node(name, "") for name in NODES}
        self.slices = {tree["metadata"]["name"]: tree for name in NODES for tree in devices.build_slices(name)}
        self.classes = {tree["metadata"]["name"]: tree for tree in devices.CLASSES}
        self.claims = {}

    def build_cluster(self):
        """Return a cluster state that has listed the objects once."""
        cluster = cluster_state.ClusterState()
        name_devices(cluster)
        cluster.replace_nodes([*self.nodes.values()])
        cluster.change_devices(lambda known: known.class_sink.replace(devices.read_classes(*self.classes.values())))
        cluster.change_devices(lambda known: known.slice_sink.replace(devices.read_slices(*self.slices.values())))
        cluster.change_devices(lambda known: known.claim_sink.replace([*self.claims.values()]))
        return cluster

    def set_slice(self, cluster, tree):
        self.slices[tree["metadata"]["name"]] = tree
        cluster.change_devices(lambda known: known.slice_sink.upsert(devices.read_slices(tree)[0]))

    def remove_slice(self, cluster, tree):
        self.slices.pop(tree["metadata"]["name"], None)
        cluster.change_devices(lambda known: known.slice_sink.remove(devices.read_slices(tree)[0]))

    def set_claim(self, cluster, claim):
        self.claims[claim.metadata.name] = claim
        cluster.change_devices(lambda known: known.claim_sink.upsert(claim))

    def remove_claim(self, cluster, claim):
        self.claims.pop(claim.metadata.name, None)
        cluster.change_devices(lambda known: known.claim_sink.remove(claim))

    def list_claims(self, cluster):
        cluster.change_devices(lambda known: known.claim_sink.replace([*self.claims.values()]))

    def set_class(self, cluster, tree):
        self.classes[tree["metadata"]["name"]] = tree
        cluster.change_devices(lambda known: known.class_sink.upsert(devices.read_classes(tree)[0]))

    def remove_class(self, cluster, tree):
        self.classes.pop(tree["metadata"]["name"], None)
        cluster.change_devices(lambda known: known.class_sink.remove(devices.read_classes(tree)[0]))

    def set_node(self, cluster, name, label):
        self.nodes[name] = read_node(name, label)
        cluster.upsert_node(self.nodes[name])

    def remove_node(self, cluster, name):
        self.nodes.pop(name, None)
        cluster.remove_node(name)


SLICES = [tree for name in NODES for tree in devices.build_slices(name)[:1]]
CLASSES = devices.CLASSES
EVENTS = [
    *((PublishedObjects.set_slice, tree) for tree in SLICES),
    *((PublishedObjects.set_slice, withdraw_attributes(tree, NICS)) for tree in SLICES),
    *((PublishedObjects.set_slice, withdraw_attributes(SLICES[0], [nic])) for nic in NICS),
    *((PublishedObjects.remove_slice, tree) for tree in SLICES),
    *(
        (change, hold_nic(*held))
        for change in (PublishedObjects.set_claim, PublishedObjects.remove_claim)
        for held in itertools.product(NODES, NICS)
    ),
    (PublishedObjects.list_claims,),
    *((change, tree) for change in (PublishedObjects.set_class, PublishedObjects.remove_class) for tree in CLASSES),
    *((PublishedObjects.set_node, name, label) for name in NODES for label in ("", "x")),
    (PublishedObjects.remove_node, "n1"),
]
RESTORING = [(PublishedObjects.set_slice, tree) for tree in SLICES]
HOLDING = [(PublishedObjects.set_slice, withdraw_attributes(tree, NICS)) for tree in SLICES] + [
    event for event in EVENTS if event[0] is PublishedObjects.set_claim
]
RELEASING = [event for event in EVENTS if event[0] is PublishedObjects.remove_claim]


def describe_nodes(cluster):
    """Return the values of each node that a decision reads."""
    known = cluster.devices
    return {
        name: (
            node,
            cluster.list_slice_resources(name),
            cluster.get_free(name),
            known.count_devices(name),
            [claim.metadata.name for claim in known.list_claims_on_node(name)],
        )
        for name, node in cluster.nodes.items()
    }


@given(
    earlier=st.lists(st.sampled_from(HOLDING), max_size=6),
    later=st.lists(st.sampled_from(EVENTS), max_size=8),
    final=st.integers(0, len(RELEASING)).flatmap(lambda some: st.permutations([*RESTORING, *RELEASING[:some]])),
)
def test_state_after_any_order_of_events_equals_that_after_a_new_list(earlier, later, final):
    """The state is that after the earlier events. At the end all attributes are published again."""
    last = PublishedObjects()
    for change, *arguments in earlier:
        change(last, cluster_state.ClusterState(), *arguments)
    cluster = last.build_cluster()
    for change, *arguments in [*later, *final]:
        change(last, cluster, *arguments)
        describe_nodes(cluster)  # what is computed on demand must not outlive the next event
    assert describe_nodes(cluster) == describe_nodes(last.build_cluster())
