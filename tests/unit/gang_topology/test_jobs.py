"""The topology of a Job of kube-scheduler: what its review writes, when nothing is written, and why."""

import copy
import functools
import json

import admitting
import jsonpatch
import msgspec
import pytest
import working
from topology_reviews import JOB, LEAF, SPINE, TOPOLOGY, ask, ask_for_segments, create, node, read_topology, review

from railwright.fabric.gang_topology import writings
from webhook import state

JOBSET = working.kind("JobSet.jobset.x-k8s.io")
API = "scheduling.k8s.io/v1beta1"


def nodes(**leaves):
    """Return nodes by the number in each leaf. A leaf whose name has a digit at its end is in that spine."""
    return [node(f"{leaf}-{i}", leaf, f"s{leaf[1:]}") for leaf, count in leaves.items() for i in range(count)]


def build_state(listed, served=(API,)):
    known = state.State()
    known.nodes.replace(listed)
    known.set_served_apis(frozenset(served))
    return known


def cluster(listed=(), served=(API,)):
    return build_state(listed, served).build_topology_facts()


def job(pods=4, *containers, label="f", metadata=None, template=None, **spec):
    written = working.template(*containers, label=label, **(template or {}))
    tree = working.workload(JOB, written, parallelism=pods, completions=pods, **spec)
    tree["metadata"] |= metadata or {}
    return tree


def read_record(tree):
    return read_topology(tree["spec"])


def read_code(tree, by=None, at=None):
    """Return the code in the record of a Job that gets no topology."""
    stored, _ = create(tree, by or ask(), at or cluster(nodes(a=4, b=8)))
    own = tree["spec"].get("scheduling")
    assert stored["spec"].get("scheduling") == own
    record = read_record(stored)
    assert "fields" not in record
    return record["reason"]["code"]


def test_a_job_names_the_lowest_level_that_holds_it():
    stored, warnings = create(job(4), ask(), cluster(nodes(a1=3, b1=4, c2=9)))
    assert stored["spec"]["scheduling"] == {
        "schedulingPolicy": {"gang": {}},
        "schedulingConstraints": {"topology": [{"key": LEAF}]},
    }
    record = read_record(stored)
    assert (record["level"], record["fields"], record["mode"]) == (LEAF, ["/spec/scheduling"], "required")
    assert record["reason"]["code"] == "TopologyRequested"
    assert not [line for line in warnings if "Topology" in line]
    higher, _ = create(job(10), ask(), cluster(nodes(a1=6, b1=6, c2=9)))
    assert read_record(higher)["level"] == SPINE


def test_a_template_without_metadata_gets_one_for_the_record(monkeypatch):
    labels = {"railwright.io/fabric": "f"}
    monkeypatch.setattr(admitting, "known", functools.partial(admitting.known, namespace_labels=labels))
    tree = job(4)
    del tree["spec"]["template"]["metadata"]
    stored, _ = create(tree, ask(), cluster(nodes(a=4)))
    assert read_record(stored)["level"] == LEAF


@pytest.mark.parametrize("amount", [2**64, "100Pi"])
def test_an_amount_beyond_64_bits_leaves_the_capacity_unknown(amount):
    container = admitting.gpus(8)
    container["resources"]["requests"]["memory"] = amount
    assert read_code(job(4, container)) == "TopologyCapacityUnknown"


def test_a_gang_larger_than_every_domain_gets_no_constraint():
    tree = job(13)
    stored, warnings = create(tree, ask(), cluster(nodes(a1=6, b1=6, c2=9)))
    assert "scheduling" not in stored["spec"]
    assert read_record(stored)["reason"] == {
        "code": "TopologyGangTooLarge",
        "parameters": {"pods": 13, "largest": 12, "level": SPINE},
    }
    assert any(line.startswith("TopologyGangTooLarge: no domain can hold the 13 pods") for line in warnings)


@pytest.mark.parametrize("mode", ["", '"off"'])
def test_by_default_nothing_is_written(mode):
    by = ask(mode) if mode else admitting.fabric(f"    placement: {{domains: [{LEAF}]}}\n")
    stored, _ = create(job(4), by, cluster(nodes(a=4)))
    assert "scheduling" not in stored["spec"]
    assert "annotations" not in stored["spec"]["template"]["metadata"]


NEEDS_CPU = admitting.gpus(8)
NEEDS_CPU["resources"]["requests"]["cpu"] = "63"
UNFIT = {
    "a cordoned node": [node("a-3", "a", cordoned=True)],
    "a node that is not Ready": [node("a-3", "a", ready="Unknown")],
    "a taint": [node("a-3", "a", taints=[{"key": "maintenance", "effect": "NoSchedule"}])],
    "too few devices": [node("a-3", "a", **{"nvidia.com/mlx5_1": "0"})],
    "too little CPU": [node("a-3", "a", cpu="32")],
}


@pytest.mark.parametrize("unfit", UNFIT.values(), ids=UNFIT)
def test_only_nodes_that_can_run_the_pods_count(unfit):
    leaf = nodes(a=3)
    tree = job(4, copy.deepcopy(NEEDS_CPU))
    assert read_code(tree, at=cluster([*leaf, *unfit])) == "TopologyGangTooLarge"
    stored, _ = create(tree, ask(), cluster([*leaf, node("a-3", "a")]))
    assert read_record(stored)["level"] == LEAF


def test_the_nodes_that_the_pods_select_count():
    tree = job(4, template={"nodeSelector": {"pool": "other"}})
    assert read_code(tree) == "TopologyGangTooLarge"
    stored, _ = create(job(4, template={"nodeSelector": {"pool": "train"}}), ask(), cluster(nodes(a=4)))
    assert read_record(stored)["level"] == LEAF


def test_a_change_of_the_nodes_counts():
    known = build_state(nodes(a=4))
    at = known.build_topology_facts()
    assert "scheduling" in create(job(4), ask(), at)[0]["spec"]
    known.nodes.upsert(node("a-0", "a", cordoned=True))
    assert "scheduling" not in create(job(4), ask(), at)[0]["spec"]
    known.nodes.upsert(node("a-0", "a"))
    assert "scheduling" in create(job(4), ask(), at)[0]["spec"]
    before = known.nodes.node_version
    known.nodes.upsert(node("a-0", "a"))
    assert known.nodes.node_version == before, "a heartbeat is no change"
    known.nodes.remove(node("a-0", "a"))
    assert "scheduling" not in create(job(4), ask(), at)[0]["spec"]


OWNED = {"ownerReferences": [{"apiVersion": "v1", "kind": "JobSet", "name": "s", "uid": "u", "controller": True}]}
ITS_OWN = {"schedulingPolicy": {"basic": {}}}
NOT_WRITTEN = {
    "TopologyOfAuthor": (job(4, scheduling=ITS_OWN), ask(), None),
    "TopologyOfAuthor, PodGroup": (job(4, template={"schedulingGroup": {"podGroupName": "g"}}), ask(), None),
    "TopologyOfOwner": (job(4, metadata=OWNED), ask(), None),
    "TopologyCompletionsDiffer": ({**job(4), "spec": {**job(4)["spec"], "completions": 9}}, ask(), None),
    "TopologyHardOnly": (job(4), ask("preferred"), None),
    "TopologyNotServed": (job(4), ask(), cluster(nodes(a=4), served=())),
    "TopologyNoKey": (job(4), admitting.fabric("    placement: {preset: volcano, gangTopology: required}\n"), None),
    "TopologyNoKey, rails": (
        job(4),
        admitting.fabric('    placement: {domains: ["example.com/leaf-{rail}"], gangTopology: required}\n'),
        None,
    ),
    "TopologyCapacityUnknown": (job(4), ask(), writings.ClusterFacts(served=frozenset({API}))),
    "TopologyCapacityUnknown, claims": (
        job(4, template={"resourceClaims": [{"name": "c", "resourceClaimName": "x"}]}),
        ask(),
        None,
    ),
    "TopologyQueueUnknown": (job(4, metadata={"labels": {"kueue.x-k8s.io/queue-name": "q"}}), ask(), None),
    "TopologyNoKey, KAI": (job(4, template={"schedulerName": "kai-scheduler"}), ask(), None),
}


@pytest.mark.parametrize("name", NOT_WRITTEN)
def test_the_record_says_why_nothing_is_written(name):
    tree, by, at = NOT_WRITTEN[name]
    assert read_code(tree, by, at) == name.partition(",")[0]


def test_a_single_pod_is_no_gang():
    stored, _ = create(job(1), ask(), cluster(nodes(a=4)))
    assert "scheduling" not in stored["spec"]
    assert TOPOLOGY not in stored["spec"]["template"]["metadata"].get("annotations", {})


def test_a_kind_without_a_field_has_the_reason_in_its_record():
    tree = working.workload(JOBSET, working.template(label="f"))
    tree["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = 4
    stored, warnings = create(tree, ask(), cluster(nodes(a=4)), JOBSET)
    template = stored["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    record = json.loads(template["metadata"]["annotations"][TOPOLOGY])
    assert record["reason"]["code"] == "TopologyNoField"
    assert not [line for line in warnings if "Topology" in line]


def test_the_levels_of_the_policy_are_the_only_ones():
    stored, _ = create(job(4), ask(more=f", gangTopologyLevels: [{SPINE}]"), cluster(nodes(a1=4, b1=4)))
    assert read_record(stored)["level"] == SPINE


def test_a_job_in_mode_warn_is_not_changed():
    by = admitting.fabric(f"    mode: warn\n    placement: {{domains: [{LEAF}], gangTopology: required}}\n")
    assert "patch" not in review(job(4), by, cluster(nodes(a=4)))


def test_the_second_review_of_a_creation_writes_nothing():
    at = cluster(nodes(a=4))
    stored, _ = create(job(4), ask(), at)
    assert "patch" not in review(stored, ask(), at)
    refused, _ = create(job(99), ask(), at)
    assert "patch" not in review(refused, ask(), at)


# --- updates --------------------------------------------------------------------------------------------------


def update(new, old, at=None):
    response = review(new, ask(), at or cluster(), operation="UPDATE", oldObject=old)
    assert response["allowed"]
    return jsonpatch.apply_patch(copy.deepcopy(new), admitting.operations(response)), response


def test_an_update_without_the_field_gets_it_back():
    written = job(4)
    stored, _ = create(written, ask(), cluster(nodes(a=4)))
    restored, response = update(written, stored)
    assert restored == stored
    assert "/spec/scheduling" in response["auditAnnotations"]["restored"]
    assert "patch" not in update(stored, stored)[1]


def test_a_manifest_with_the_record_of_another_cluster_can_be_applied_again():
    written = job(4)
    written["spec"]["template"]["metadata"]["annotations"] = {TOPOLOGY: json.dumps({"scheduler": "Volcano"})}
    stored, _ = create(written, ask(), cluster(nodes(a=4)))
    assert read_record(stored)["scheduler"] == "kube-scheduler"
    assert update(written, stored)[0] == stored


def test_a_change_of_the_size_keeps_the_field():
    stored, _ = create(job(4), ask(), cluster(nodes(a=4)))
    resized = copy.deepcopy(stored)
    resized["spec"]["parallelism"] = 2
    del resized["spec"]["scheduling"]
    assert update(resized, stored)[0]["spec"]["scheduling"] == stored["spec"]["scheduling"]


def test_an_update_never_adds_the_field():
    old, _ = create(job(4), ask('"off"'), cluster(nodes(a=4)))
    assert "patch" not in update(old, old, cluster(nodes(a=4)))[1]


def test_a_field_that_the_author_wrote_is_not_put_back():
    old, _ = create(job(4, scheduling=ITS_OWN), ask(), cluster(nodes(a=4)))
    new = copy.deepcopy(old)
    del new["spec"]["scheduling"]
    assert "patch" not in update(new, old)[1]


def test_a_forged_record_puts_no_other_field_back():
    old = job(4)
    old["spec"]["template"]["metadata"]["annotations"] = {TOPOLOGY: json.dumps({"fields": ["/spec/parallelism"]})}
    new = copy.deepcopy(old)
    del new["spec"]["parallelism"]
    assert "patch" not in update(new, old)[1]


# --- pods -----------------------------------------------------------------------------------------------------


def plan_pod(stored, **spec):
    template = copy.deepcopy(stored["spec"]["template"])
    tree = {"metadata": {**template["metadata"], "name": "p"}, "spec": {**template["spec"], **spec}}
    tree["metadata"]["labels"]["batch.kubernetes.io/job-name"] = "w"
    return admitting.planned(tree, ask())


def test_a_pod_without_a_pod_group_says_that_the_field_was_dropped():
    stored, _ = create(job(4), ask(), cluster(nodes(a=4)))
    outcome = plan_pod(stored)
    assert [warning.code for warning in outcome.warnings if "Topology" in warning.code] == ["TopologyDropped"]
    assert admitting.record(msgspec.to_builtins(outcome.pod))["skipped"]["topology"]["code"] == "TopologyDropped"
    grouped = plan_pod(stored, schedulingGroup={"podGroupName": "w-1"})
    assert not [warning for warning in grouped.warnings if "Topology" in warning.code]
    unasked, _ = create(job(99), ask(), cluster(nodes(a=4)))
    assert not [warning for warning in plan_pod(unasked).warnings if "Topology" in warning.code]


# --- capacity -------------------------------------------------------------------------------------------------


def test_equal_leaf_names_in_two_spines_are_two_leaves():
    listed = [node(f"n{i}", "leaf", f"s{i % 2}") for i in range(8)]
    stored, _ = create(job(5), ask(), cluster(listed))
    assert read_record(stored)["reason"]["code"] == "TopologyGangTooLarge"


def test_a_node_holds_as_many_pods_as_fit():
    by = admitting.fabric(
        f"    placement: {{domains: [{LEAF}], gangTopology: required}}\n    railsPerPod: proportional\n"
        "    gpusPerNode: 8\n"
    )
    stored, _ = create(job(8, admitting.gpus(4)), by, cluster(nodes(a=3)))
    assert read_record(stored)["reason"]["parameters"]["largest"] == 3, "4 GPUs take one of two rails: rail0 of each"
    stored, _ = create(
        job(8, admitting.gpus(4)), by, cluster([node(f"n{i}", "a", **{"nvidia.com/mlx5_0": "2"}) for i in range(4)])
    )
    assert read_record(stored)["level"] == LEAF


def own_pod(node_name, cpu="2", *, name="d", kind="DaemonSet", phase="Running", **limits):
    """Return a pod that a controller has placed on a node."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u", "controller": True}
    tree = {
        "metadata": {"name": f"{name}-{node_name}", "namespace": "kube-system", "ownerReferences": [owner]},
        "spec": {
            "nodeName": node_name,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, **limits}}}],
        },
        "status": {"phase": phase},
    }
    return admitting.view(tree)


def read_level(known):
    """Return the level of a Job whose 4 pods need 63 of 64 CPUs each, or the reason why it has none."""
    stored, _ = create(job(4, copy.deepcopy(NEEDS_CPU)), ask(), known.build_topology_facts())
    record = read_record(stored)
    return record.get("level") or record["reason"]["code"]


TAKING = {
    "a DaemonSet": own_pod("a-0"),
    "a static pod": own_pod("a-0", kind="Node"),
    "two DaemonSets": [own_pod("a-0", "600m"), own_pod("a-0", "600m", name="e")],
    "a rail": own_pod("a-0", "0", **{"nvidia.com/mlx5_1": "1"}),
}
SPARING = {
    "a small DaemonSet": own_pod("a-0", "1"),
    "a DaemonSet's pod that has ended": own_pod("a-0", phase="Failed"),
    "a DaemonSet's pod without a node": own_pod(""),
    "a pod that will end": own_pod("a-0", kind="ReplicaSet"),
    "another leaf": own_pod("b-0"),
}


@pytest.mark.parametrize("case", [*TAKING, *SPARING])
def test_what_runs_on_an_empty_node_has_no_room_for_the_gang(case):
    known = build_state(nodes(a=4, b=3))
    pods = (TAKING | SPARING)[case]
    pods = pods if isinstance(pods, list) else [pods]
    expected = SPINE if case in TAKING else LEAF
    assert read_level(known) == LEAF
    for pod in pods:
        known.daemon_pods.upsert(pod)
        known.daemon_pods.upsert(pod)  # an update that changes nothing
    assert read_level(known) == expected
    for pod in pods:
        known.daemon_pods.remove(pod)
        known.daemon_pods.remove(pod)
    assert read_level(known) == LEAF
    known.daemon_pods.replace(pods)
    assert read_level(known) == expected
    known.daemon_pods.replace([])
    assert read_level(known) == LEAF


def test_a_daemon_pod_that_grows_or_ends_counts_as_it_is_now():
    known = build_state(nodes(a=4, b=3))
    for pod, expected in (
        (own_pod("a-0", "1"), LEAF),
        (own_pod("a-0", "2"), SPINE),
        (own_pod("a-0", "2", phase="Succeeded"), LEAF),
    ):
        known.daemon_pods.upsert(pod)
        assert read_level(known) == expected


@pytest.mark.parametrize(
    ("segment", "level"),
    [(1, SPINE), (4, SPINE), (5, "TopologyGangTooLarge")],
    ids=["none", "two a leaf", "one a leaf"],
)
def test_a_domain_above_the_leaf_holds_whole_segments(segment, level):
    stored, _ = create(job(16), ask_for_segments(segment), cluster(nodes(a=8, b=9)))
    record = read_record(stored)
    assert (record.get("level") or record["reason"]["code"]) == level
    left_out = segment if level == SPINE and segment > 1 else None
    assert (record["reason"]["parameters"].get("segment") or None) == left_out


def test_a_gang_in_one_leaf_may_have_a_smaller_last_segment():
    stored, _ = create(job(6), ask_for_segments(4), cluster(nodes(a=7)))
    assert read_record(stored)["level"] == LEAF


def test_segments_count_also_where_the_policy_names_higher_levels_only():
    by = ask_for_segments(5, f"required, gangTopologyLevels: [{SPINE}]")
    assert read_code(job(16), by, cluster(nodes(a=8, b=9))) == "TopologyGangTooLarge"
    assert read_record(create(job(10), by, cluster(nodes(a=8, b=9)))[0])["level"] == SPINE


def test_selectors_of_any_length_are_bounded():
    values = [f"v{i}" for i in range(1000)]
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": values}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert read_code(job(4, template={"affinity": affinity})) == "TopologyCapacityUnknown"
