"""The overview of a fabric: nodes, rails, gangs and their scores, from the state that placement uses."""

import json

import devices
import msgspec
import placing
import pytest

from railwright.cluster import policies
from railwright.fabric import names, node_views, views
from railwright.fabric.overview import overview_builder, overview_types
from railwright.fabric.policy import compiled, model

POLICY = placing.build_policy(oversubscription=[8])


CLAIMS = """\
apiVersion: railwright.io/v1alpha1
fabrics:
  roce:
    transport: roce
    claims: {deviceClass: dranet}
    rails: [{name: rail0, device: rdmap16s27}, {name: rail1, device: rdmap32s27}]
    placement: {preset: topograph}
"""


def read_claims_policy() -> model.Policy:
    policy = policies.read(CLAIMS)
    assert isinstance(policy, model.Policy), policy
    return policy


class Cluster:
    def __init__(self, nodes=(), pods=(), least=None, policy=POLICY, state=None) -> None:
        self.state = state or placing.build_cluster(nodes, pods, least)
        self.policy = policy
        self.builder = overview_builder.OverviewBuilder(self.state, lambda: self.policy, {})

    def add(self, *pods):
        for pod in pods:
            self.state.upsert_pod(pod)
        return self

    def seen(self) -> overview_types.Overview:
        self.builder.refresh_fully()
        return self.builder.build_overview(source="test")

    def gang(self, key="train/g") -> overview_types.Gang:
        return next(gang for gang in self.seen().gangs if gang.key == key)

    def node(self, name) -> overview_types.Node:
        return next(node for leaf in self.seen().leaves.values() for node in leaf.nodes if node.name == name)


def gang(*where, name="g"):
    return [placing.build_pod(f"{name}-{rank}", group=name, on=on) for rank, on in enumerate(where)]


def test_leaves_are_listed_below_their_spines_in_natural_order():
    nodes = [
        placing.build_node(f"n-{i}", f"l{leaf}", f"s{spine}") for i, leaf, spine in ((0, 10, 1), (1, 2, 1), (2, 3, 0))
    ]
    seen = Cluster([*nodes, placing.build_node("astray"), placing.build_node("n-10", "l2", "s1")]).seen()
    assert list(seen.leaves) == ["roce/s0/l3", "roce/s1/l2", "roce/s1/l10", "roce"]
    assert [node.name for node in seen.leaves["roce/s1/l2"].nodes] == ["n-1", "n-10"]
    assert seen.leaves["roce/s1/l2"].above == ("s1",)


def build_claimed(**slices) -> Cluster:
    policy = read_claims_policy()
    cluster = Cluster([placing.build_node("a-0", "a")], policy=policy)
    offered = devices.build_slices("a-0", **slices)
    fabrics = compiled.list_claimed_fabrics(policy.document)
    cluster.state.change_devices(lambda known: known.class_sink.replace(devices.read_classes(devices.NIC_CLASS)))
    cluster.state.change_devices(lambda known: known.slice_sink.replace(devices.read_slices(*offered)))
    cluster.state.change_devices(lambda known: known.replace_fabrics(fabrics))
    return cluster


def test_rails_of_claims_are_counted_from_slices_and_shown_with_their_device_class():
    cluster = build_claimed(taints={"pci-0000-20-1b-0": "NoSchedule"})
    fabric = cluster.seen().fabrics[0]
    assert (fabric.device_class, fabric.rails_free, fabric.rails_dead) == ("dranet", 1, 1)
    assert cluster.node("a-0").rails == "fd"
    assert cluster.node("a-0").rail_notes == (
        "rail1: device pci-0000-20-1b-0 has the taint example.com/broken:NoSchedule",
    )


def test_a_rail_in_another_pods_claim_is_busy_and_the_claim_is_named():
    cluster = build_claimed()
    held = devices.build_claim("nic", {"nic": "dranet"}, allocated=[("dra.net", "a-0", "pci-0000-10-1b-0")])
    cluster.state.change_devices(lambda known: known.claim_sink.upsert(devices.read_claim(held)))
    assert cluster.node("a-0").rails == "bf"
    assert cluster.node("a-0").rail_notes == ("rail0: device pci-0000-10-1b-0 is held by claim train/nic",)
    fabric = cluster.seen().fabrics[0]
    assert (fabric.rails_free, fabric.rails_busy, fabric.leaves_free) == (1, 1, 0)


def test_the_state_of_a_rail_is_free_busy_degraded_or_dead():
    nodes = [
        placing.build_node("a-0", "a",
                           rails_each={"nvidia.com/mlx5_0": 1, "nvidia.com/mlx5_1": 1, "nvidia.com/mlx5_2": 1},
                           capacity={"nvidia.com/mlx5_1": "2"}),
    ]  # fmt: skip
    seen = Cluster(nodes, [placing.build_pod("p", group="g", on="a-0")])
    assert seen.node("a-0").rails == "bwbd"
    assert seen.seen().fabrics[0].rails_dead == 1
    assert seen.seen().fabrics[0].rails_busy == 3


def test_a_busy_rail_names_the_pod_that_holds_it():
    nodes = placing.build_leaves(a=2)
    row = Cluster(nodes, gang("a-00", "a-01")).node("a-01")
    assert [(pod.pod, pod.gang, pod.rank, pod.rails) for pod in row.pods] == [("train/g-1", "train/g", 1, (0, 1, 2, 3))]


def test_a_node_with_gpus_and_no_device_plugin_has_dead_rails_and_a_node_without_gpus_is_left_out():
    cpu = {"metadata": {"name": "web-0", "uid": "web-0"}, "status": {"allocatable": {"cpu": "8"}}}
    seen = Cluster([placing.build_node("gpu-0", "a", rails_each=0), msgspec.convert(cpu, node_views.Node)]).seen()
    assert [(node.name, node.rails) for leaf in seen.leaves.values() for node in leaf.nodes] == [("gpu-0", "dddd")]


def test_a_gang_is_assessed_without_its_own_assumed_pods_as_competitors():
    cluster = Cluster(placing.build_leaves(a=2), gang("a-00", ""))
    waiting = placing.build_pod("g-1", group="g")
    cluster.state.assumed.assume(placing.build_assumed_pod(waiting, "a-01"))
    assert (cluster.gang().state, cluster.gang().bandwidth) == ("placed", 1.0)


def test_a_gang_spread_over_leaves_is_shown_with_the_best_possible_bandwidth():
    assessed = Cluster(placing.build_leaves(a=4, b=4), gang("a-00", "b-00")).gang()
    assert assessed.bandwidth < assessed.best == 1.0
    assert (assessed.leaves, assessed.min_leaves, assessed.state) == (2, 1, overview_types.SPREAD)
    message = assessed.why[0].message
    assert message.startswith("2 pods on 2 leaves (a in s-a 1, b in s-b 1) with 0.")
    assert message.endswith("recreated now, the gang could have 1.00 on 1 leaf (a in s-a)")


def test_a_gang_has_less_bandwidth_if_rails_and_gpus_are_on_different_numa_nodes():
    """Another pod uses the GPUs of NUMA node 0, and the gang's rails are there."""
    policy = placing.build_policy(shapes=[placing.TWO_SIDED])
    nodes = [placing.build_node(name, "a", rails_each=2) for name in ("a-0", "a-1", "a-2")]
    requests = {placing.GPU: "2", placing.RESOURCES[0]: "1"}
    other = placing.build_pod_with("other", {placing.GPU: "4", placing.RESOURCES[1]: "1"}, on="a-0")
    members = [placing.build_pod_with(f"g-{rank}", requests, on=f"a-{rank}", group="g") for rank in range(2)]
    assert Cluster(nodes, members, policy=policy).gang().why == ()
    assessed = Cluster(nodes, [*members, other], policy=policy).gang()
    assert assessed.bandwidth < assessed.best
    assert "NUMA splits on a-0" in assessed.why[1].message


def test_the_reason_of_a_gang_says_that_its_own_pods_share_nics():
    pods = [placing.build_pod(f"g-{rank}", group="g", gpus=2, on="a-0") for rank in range(2)]
    assessed = Cluster([placing.build_node("a-0", "a", rails_each=100)], pods).gang()
    assert [why.message for why in assessed.why] == ["pods of the gang share NICs on a-0"]


SHARED_NICS = [
    *(placing.build_node(f"{leaf}-0", leaf, rails_each=100) for leaf in "abc"),
    placing.build_node("degraded-0", "d", rails_each=100, capacity={placing.RESOURCES[0]: "101"}),
]


def share(name, on, *, gpus=2, rails=1):
    return placing.build_pod(name, group=name, gpus=gpus, rails=rails, on=on)


FILLED = {  # pods of other jobs on nodes with shared NICs, the node of a job of one pod: its state, bandwidth and best
    "fuller than the other used node": (
        [share("x", "a-0"), share("y", "b-0"), share("z", "b-0")],
        "b-0",
        ("placed", 0.333, 0.333),
    ),
    "as full as the other, whose NICs fewer pods share": (
        [share("x", "a-0", gpus=4), share("y", "b-0"), share("z", "b-0")],
        "b-0",
        ("placed", 0.333, 0.333),
    ),
    "less full than a node with a degraded rail": (
        [share("x", "degraded-0", gpus=3, rails=0), share("y", "b-0")],
        "b-0",
        ("placed", 0.5, 0.5),
    ),
    "the only used node": ([share("x", "a-0")], "a-0", ("placed", 0.5, 0.5)),
    "an idle node": ([share("x", "a-0")], "b-0", ("placed", 1.0, 1.0)),
    "less full than a node without pods on its NICs": (
        [share("x", "a-0", gpus=3, rails=0), share("y", "b-0")],
        "b-0",
        ("spread", 0.5, 1.0),
    ),
}


@pytest.mark.parametrize(("others", "on", "expected"), FILLED.values(), ids=FILLED)
def test_a_single_pod_is_called_spread_only_if_its_recreation_would_raise_its_bandwidth(others, on, expected):
    """The extender fills used nodes first, so that the pod would get the same node again."""
    assessed = Cluster(SHARED_NICS, [*others, share("g", on, gpus=1)]).gang()
    assert (assessed.state, assessed.bandwidth, assessed.best) == expected
    texts = [why.message for why in assessed.why]
    assert any("recreated now" in text for text in texts) == (assessed.state == "spread")
    assert texts[-1:] == ([f"NICs shared with other pods on {on}"] if assessed.bandwidth < 1 else [])


def test_placing_a_single_pod_does_not_change_its_best_possible_bandwidth():
    other = share("x", "a-0")
    waiting = Cluster(SHARED_NICS, [other, share("g", "", gpus=1)]).gang()
    assert (waiting.state, waiting.best) == ("waiting", 0.5)
    assert Cluster(SHARED_NICS, [other, share("g", "a-0", gpus=1)]).gang().best == 0.5


def test_a_placed_gang_shows_a_broken_rail_and_that_its_other_pods_cannot_use_it():
    nodes = [placing.mark_broken(placing.build_node("a-0", "a"), "rail1"), placing.build_node("a-1", "a")]

    def list_reasons(*where):
        return [(why.code, why.message) for why in Cluster(nodes[: len(where)], gang(*where)).gang().why]

    broken = ("RailBroken", "the node's annotation railwright.io/broken-rails names rail1 on a-0")
    assert list_reasons("a-0") == [broken]
    assert list_reasons("a-0", "a-1") == [
        broken,
        ("PeerRailMissing", "1 more pod of the gang cannot use rail1, missing where other pods of the gang run: a-0"),
    ]


def test_a_gang_with_a_broken_rail_and_shared_nics_has_both_as_reasons():
    nodes = [placing.mark_broken(placing.build_node("a-0", "a", rails_each=100), "rail1")]
    assessed = Cluster(nodes, [share("x", "a-0"), share("g", "a-0")]).gang()
    (why,) = assessed.why
    assert (
        why.message
        == "the node's annotation railwright.io/broken-rails names rail1, NICs shared with other pods on a-0"
    )


@pytest.mark.parametrize(
    ("pods", "ranks"), [(("g-5", "g-3"), [3, 5]), (("g-x5", "g-x3"), [0, 1])], ids=["indexes", "random suffixes"]
)
def test_a_pod_keeps_its_rank_after_other_pods_of_the_gang_have_ended(pods, ranks):
    shown = Cluster(pods=[placing.build_pod(pod, group="g") for pod in pods]).gang()
    assert [rank.rank for rank in shown.ranks] == ranks


@pytest.mark.parametrize("placement", [{}, {"domains": [], "oversubscription": []}], ids=["domains", "no domains"])
def test_a_gang_is_assessed_by_the_nodes_that_its_node_selector_matches(placement):
    nodes = [*placing.build_leaves(a=2), *(placing.build_node(f"b-{i}", "b", labels={"pool": "x"}) for i in range(2))]
    members = [placing.change_pod(pod, spec={"node_selector": {"pool": "x"}}) for pod in gang("", "")]
    others = [placing.build_pod(f"other-{i}", on=f"b-{i}") for i in range(2)]
    assessed = Cluster(nodes, [*members, *others], policy=placing.build_policy(**placement)).gang()
    assert assessed.state == overview_types.WAITING
    messages = [why.message for why in assessed.why]
    assert "2 nodes: cordoned, not Ready, tainted, or not matched by the pod's node selector or affinity" in messages[1]
    assert messages[-1].endswith("nvidia.com/gpu on b-1 is used by train/other-1")
    assert Cluster(nodes[:3], members, policy=placing.build_policy(**placement)).gang().state == overview_types.NEVER


def test_the_leaves_of_a_partly_placed_gang_that_does_not_fit_are_those_in_use():
    nodes = placing.build_leaves(a=2)
    other = placing.build_pod("other", on="a-01")
    assessed = Cluster(nodes, [*gang("a-00", ""), other]).gang()
    assert (assessed.state, assessed.leaves, assessed.min_leaves) == (overview_types.STARTING, 1, 1)


def test_a_gang_whose_pods_select_different_nodes_is_assessed_by_all_nodes():
    """Kueue's topology-aware scheduling gives each pod the node selector of its place."""
    nodes = [placing.build_node(f"a-{i}", "a", labels={"host": str(i)}) for i in range(2)]

    def pin(*where):
        members = enumerate(gang(*where))
        return [placing.change_pod(pod, spec={"node_selector": {"host": str(rank)}}) for rank, pod in members]

    waiting = Cluster(nodes, pin("", "")).gang()
    assert (waiting.state, waiting.why[0].code, waiting.best) == (overview_types.WAITING, "FitsNow", 1.0)
    assert ", if their node selectors allow it; " in waiting.why[0].message
    assert Cluster(nodes, pin("a-0", "")).gang().why[0].code == "FitsNow"
    assert Cluster(nodes, pin("a-0", "a-1")).gang().state == overview_types.PLACED


def test_a_gang_waits_for_a_resource_that_only_a_device_class_provides():
    """kube-scheduler counts it by the slices, and nodes do not report it."""
    asked = {placing.RESOURCES[0]: "1", "nvidia.com/gpu": "8"}
    nodes = [placing.build_node(f"n-{number}", "a", rails_each=1) for number in range(2)]
    for node in nodes:
        del node.status.allocatable["nvidia.com/gpu"]
    cluster = Cluster(nodes, [placing.build_pod_with(f"g-{rank}", asked, group="g") for rank in range(2)])
    assert cluster.gang().state == overview_types.NEVER
    cluster.state.change_devices(lambda known: known.class_sink.replace(devices.read_classes(devices.GPU_CLASS)))
    assert cluster.gang().state == overview_types.WAITING


def test_the_node_selector_of_a_leader_does_not_limit_where_its_gang_may_fit():
    nodes = [*placing.build_leaves(a=2), placing.build_node("b-0", "b", labels={"pool": "x"})]
    leader = placing.change_pod(placing.build_pod("g-0", group="g"), spec={"node_selector": {"pool": "x"}})
    other = placing.build_pod("other", on="b-0")
    assert Cluster(nodes, [leader, other], {"train/g": 3}).gang().state == overview_types.WAITING
    assert Cluster(nodes, [leader, other], {"train/g": 4}).gang().state == overview_types.NEVER


def test_a_gang_waits_while_no_node_has_the_labels_that_it_selects():
    """An autoscaler adds nodes to a pool that has none."""
    members = [placing.change_pod(pod, spec={"node_selector": {"pool": "x"}}) for pod in gang("", "")]
    waiting = Cluster(placing.build_leaves(a=2), members).gang()
    assert waiting.state == overview_types.WAITING
    assert ", if their node selectors allow it; " in waiting.why[0].message


def test_a_placed_gang_is_not_called_spread_for_nodes_that_its_node_selector_excludes():
    nodes = [*placing.build_leaves(a=2), *(placing.build_node(f"{x}-0", x, labels={"pool": "x"}) for x in "bc")]
    members = [placing.change_pod(pod, spec={"node_selector": {"pool": "x"}}) for pod in gang("b-0", "c-0")]
    assert Cluster(nodes, gang("b-0", "c-0")).gang().state == overview_types.SPREAD
    assert Cluster(nodes, members).gang().state == overview_types.PLACED


@pytest.mark.parametrize(("pods", "placed"), [(("a-00", ""), 1), (("a-00", "a-01"), 2)])
def test_a_gang_is_starting_while_some_of_its_pods_do_not_exist(pods, placed):
    assessed = Cluster(placing.build_leaves(a=4), gang(*pods), {"train/g": 3}).gang()
    assert (assessed.state, assessed.placed, assessed.size) == (overview_types.STARTING, placed, 3)
    assert assessed.why[0].message == "1 of its 3 pods does not exist yet"


def test_the_reason_of_a_gang_names_a_fabric_that_the_policy_lacks_and_has_a_fix():
    cluster = Cluster(placing.build_leaves(a=2), gang("a-00", "a-01"))
    cluster.policy = placing.build_policy()
    cluster.state.upsert_pod(placing.build_pod("x-0", group="x", label="other", on="a-01"))
    assert "these pods name fabric 'other'" in cluster.gang("train/x").why[0].message
    document = msgspec.structs.replace(cluster.policy.document, default_fabric=None)
    cluster.policy = model.Policy(document, digest="sha256:without")
    cluster.state.upsert_pod(placing.build_pod("y-0", group="y", label="default", on="a-01"))
    why = cluster.gang("train/y").why[0]
    assert why.fix == "set `defaultFabric`, or label the pods with another fabric and recreate them"
    record = json.dumps({"fabric": "x" * 200_000, "rails": ["rail0"]})
    cluster.state.upsert_pod(
        placing.build_pod("z-0", group="z", on="a-01", label="", annotations={names.INJECTION: record})
    )
    assert len(cluster.gang("train/z").why[0].message) < 200


def test_a_gang_shows_that_the_policy_names_no_domains():
    cluster = Cluster(placing.build_leaves(a=2), gang("a-00", "a-01"), policy=placing.build_policy(domains=[]))
    assert cluster.gang().why[0].message == "the policy names no domains: leaves and uplinks are not modelled"


def test_the_fabric_of_a_gang_is_taken_from_its_pods_with_rails():
    """The label of a JobSet counts for its driver, and that in the template of its workers for these."""
    document = placing.build_document()
    document["fabrics"]["ib"] = {
        "transport": "infiniband",
        "rails": [{"name": "rail0", "resource": placing.RESOURCES[0]}],
    }
    policy = model.Policy(msgspec.convert(document, model.PolicyDocument), digest="sha256:two")
    record = json.dumps({"fabric": "roce", "rails": []})
    driver = placing.build_pod("g-0", group="g", gpus=0, rails=0, on="a-00", annotations={names.INJECTION: record})
    worker = placing.build_pod("g-1", group="g", gpus=0, label="ib", on="a-01")
    shown = Cluster(placing.build_leaves(a=2), [driver, worker], policy=policy).gang()
    assert (shown.fabric, [why.code for why in shown.why]) == ("ib", ["DomainsUndefined"])
    assert [rank.leaf for rank in shown.ranks] == ["", ""]


def test_without_a_policy_the_overview_is_empty():
    seen = Cluster(placing.build_leaves(a=1), gang("a-00"), policy=None).seen()
    assert (seen.fabrics, seen.policy) == ([], "")


def test_the_explanation_of_a_node_says_why_a_gang_does_not_use_it():
    cluster = Cluster(placing.build_leaves(a=2, b=2), [*gang("", ""), *gang("a-00", name="o")])
    cluster.seen()
    explanation = cluster.builder.explain_node_score("train/g", "a-00")
    assert "held by train/o-0" in explanation["reasons"][0]["message"]
    free = cluster.builder.explain_node_score("train/g", "b-00")
    assert "locality" in free["terms"]
    assert cluster.builder.explain_node_score("train/g", "nowhere") is None
    assert cluster.builder.explain_node_score("train/none", "a-00") is None


# --- ages, notes, utilization -------------------------------------------------------------------------------------


def bound_pod(name, on, created, bound=""):
    pod = placing.build_pod(name, group="g", on=on)
    conditions = [views.PodCondition(type="PodScheduled", status="True", last_transition_time=bound)] if bound else None
    return placing.change_pod(pod, metadata={"creation_timestamp": created}, status={"conditions": conditions})


def test_a_gang_shows_when_its_first_pod_was_created_and_its_last_pod_was_bound():
    first = bound_pod("g-0", "a-00", "2026-11-21T10:00:00Z", "2026-11-21T10:05:00Z")
    cluster = Cluster(placing.build_leaves(a=2), [first, bound_pod("g-1", "", "2026-11-21T10:00:09Z")])
    waiting = cluster.gang()
    assert (waiting.created_at, waiting.placed_at) == ("2026-11-21T10:00:00Z", "")
    cluster.add(bound_pod("g-1", "a-01", "2026-11-21T10:00:09Z", "2026-11-21T10:06:00Z"))
    assert cluster.gang().placed_at == "2026-11-21T10:06:00Z"


def test_each_refresh_assesses_a_limited_number_of_gangs():
    names = [f"g{index:02}" for index in range(40)]
    cluster = Cluster(placing.build_leaves(a=80), [pod for name in names for pod in gang("", "", name=name)])
    assessed = []
    for _ in range(3):
        for _ in cluster.builder.refresh():
            pass
        assessed.append(sum(gang.best is not None for gang in cluster.builder.build_overview().gangs))
    assert assessed == [32, 40, 40]


def test_the_summary_counts_gpus_and_free_leaves():
    nodes = [*placing.build_leaves(a=2, b=2, c=2), placing.build_node("c-02", "c", "s-c", unschedulable=True)]
    cluster = Cluster(nodes, gang("a-00"))
    fabric = cluster.seen().fabrics[0]
    assert (fabric.gpus, fabric.gpus_used, fabric.leaves_free) == (56, 8, 1)
    assert (cluster.node("a-00").gpus, cluster.node("a-00").gpus_used) == (8, 8)


# --- broken rails -----------------------------------------------------------------------------------------


def test_a_rail_in_the_annotation_of_broken_rails_is_dead_and_has_a_note():
    dead = placing.build_node("a-01", "a", rails_each=0, capacity=dict.fromkeys(placing.RESOURCES, "1"))
    seen = Cluster([placing.mark_broken(placing.build_node("a-00", "a"), "rail3"), dead], policy=placing.build_policy())
    node = seen.node("a-00")
    assert (node.rails, node.rail_notes) == (
        "fffd",
        ("rail3: the node's annotation railwright.io/broken-rails names the rail",),
    )
    assert (seen.node("a-01").rails, seen.node("a-01").rail_notes) == ("dddd", ())
    fabric = seen.builder.build_overview(source="test").fabrics[0]
    assert (fabric.rails_free, fabric.rails_dead) == (3, 5)
