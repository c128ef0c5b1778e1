"""The annotations for KAI: what the review of a workload writes, when nothing is written, and why.

KAI is not run. Annotations and Topologies are compared with cuts of its source and its definition.
"""

import copy
import pathlib
import re

import admitting
import jsonschema
import msgspec
import pytest
import working
import yaml
from topology_reviews import HOST, JOB, LEAF, SPINE, ask, ask_for_segments, build_state, create, read_topology, review

from railwright.cluster import resources
from railwright.fabric import kueue

DATA = pathlib.Path(__file__).parents[2] / "data" / "kai"
TOPOLOGY, REQUIRED, PREFERRED = (
    f"kai.scheduler/topology{end}" for end in ("", "-required-placement", "-preferred-placement")
)
SMALLEST = "kai.scheduler/batch-min-member"
JOBSET, PYTORCH, SET = map(working.kind, ("JobSet.jobset.x-k8s.io", "PyTorchJob.kubeflow.org", "StatefulSet.apps"))
KAI = {"schedulerName": "kai-scheduler"}
LEVELS = {"leaves": (SPINE, LEAF, HOST)}


def build_topology(name, labels):
    levels = [{"nodeLabel": label} for label in labels]
    return {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": name}} | {
        "spec": {"levels": levels}
    }


def cluster(topologies=LEVELS, *, unlabelled=0, **leaves):
    """Return nodes in leaves of one spine, of which the first of each leaf lack the label of the host."""
    known = build_state(unlabelled, **leaves)
    trees = [build_topology(name, labels) for name, labels in topologies.items()]
    known.kai_topologies.replace([msgspec.convert(tree, kueue.Topology) for tree in trees])
    return known.build_topology_facts()


def job(pods=4, *, annotations=None, template=None, **spec):
    written = working.template(label="f", annotations=template or {}, **KAI)
    tree = working.workload(JOB, written, parallelism=pods, **spec)
    if annotations is not None:
        tree["metadata"]["annotations"] = annotations
    return tree


def job_set(pods=4, **spec):
    tree = working.workload(JOBSET, working.template(label="f", **KAI), **spec)
    tree["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = pods
    return tree


def pytorch_job(**spec):
    roles = {"Master": 1, "Worker": 3}
    replicas = {
        role: {"replicas": pods, "template": working.template(label="f", **KAI)} for role, pods in roles.items()
    }
    return {"metadata": {"name": "w", "namespace": "prod"}, "spec": {"pytorchReplicaSpecs": replicas, **spec}}


def read_annotations(tree):
    annotations = tree["metadata"].get("annotations", {})
    return {key: value for key, value in annotations.items() if key.startswith("kai.scheduler/")}


ONE_LEAF = {TOPOLOGY: "leaves", REQUIRED: LEAF}
WRITTEN = {  # the kind, the workload, the mode, and what it gets where 4 nodes are in a leaf
    "Job": (JOB, job(), "required", {**ONE_LEAF, SMALLEST: "4"}),
    "Job with annotations": (JOB, job(annotations={"a": "b"}), "required", {**ONE_LEAF, SMALLEST: "4"}),
    "Job larger than a leaf": (
        JOB,
        job(6),
        "required",
        {TOPOLOGY: "leaves", REQUIRED: SPINE, PREFERRED: LEAF, SMALLEST: "6"},
    ),
    "Job, soft": (JOB, job(40), "preferred", {TOPOLOGY: "leaves", PREFERRED: LEAF}),
    "JobSet": (JOBSET, job_set(), "required", ONE_LEAF),
    "PyTorchJob": (PYTORCH, pytorch_job(), "required", ONE_LEAF),
    "PyTorchJob that may shrink, soft": (
        PYTORCH,
        pytorch_job(elasticPolicy={"minReplicas": 1}),
        "preferred",
        {TOPOLOGY: "leaves", PREFERRED: LEAF},
    ),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_the_workload_gets_the_annotations_of_its_gang(case):
    kind, tree, mode, expected = WRITTEN[case]
    at = cluster(a=4, b=3)
    stored, warnings = create(tree, ask(mode), at, kind)
    assert read_annotations(stored) == expected
    assert stored["metadata"]["annotations"].keys() - expected.keys() == {*tree["metadata"].get("annotations", ())}
    assert not [line for line in warnings if "Topology" in line]
    assert "patch" not in review(stored, ask(mode), at, kind), "the API server may ask twice"


def test_the_record_names_the_annotations():
    stored, _ = create(job(), ask(), cluster(a=4))
    record = read_topology(stored["spec"])
    assert (record["scheduler"], record["level"]) == ("KAI", LEAF)
    assert record["fields"][0] == "/metadata/annotations/kai.scheduler~1topology"
    assert record["reason"]["parameters"]["field"].startswith(f"metadata.annotations.{TOPOLOGY}, ")


OWNED = {"ownerReferences": [{"apiVersion": "v1", "kind": "TrainJob", "name": "t", "uid": "u", "controller": True}]}
OWNED_JOB = job()
OWNED_JOB["metadata"] |= OWNED
NOT_WRITTEN = {
    "TopologyOfAuthor, Job": (JOB, job(annotations={PREFERRED: SPINE}), {}),
    "TopologyOfAuthor, template": (JOB, job(template={"kai.scheduler/segment-size": "2"}), {}),
    "TopologyOfAuthor, PodGroup": (JOB, job(template={"pod-group-name": "g"}), {}),
    "TopologyOfOwner": (JOB, OWNED_JOB, {}),
    "TopologyNoKey, no Topology": (JOB, job(), {"topologies": {}}),
    "TopologyNoKey, other levels": (JOB, job(), {"topologies": {"hosts": (HOST,)}}),
    "TopologyGangTooLarge": (JOB, job(9), {}),
    "TopologyGangTooLarge, nodes without a label": (JOB, job(), {"unlabelled": 2}),
    "TopologyCompletionsDiffer": (JOB, job(completions=9), {}),
    "TopologySmallerGang, Job": (JOB, job(annotations={SMALLEST: "2"}), {}),
    "TopologySmallerGang, JobSet": (JOBSET, job_set(startupPolicy={"startupPolicyOrder": "InOrder"}), {}),
    "TopologySmallerGang, elastic": (PYTORCH, pytorch_job(elasticPolicy={"minReplicas": 1}), {}),
    "TopologySmallerGang, policy": (
        PYTORCH,
        pytorch_job(runPolicy={"schedulingPolicy": {"minAvailable": 1}}),
        {},
    ),
    "TopologyNoField": (SET, working.workload(SET, working.template(label="f", **KAI), replicas=4), {}),
}


@pytest.mark.parametrize("case", NOT_WRITTEN)
def test_the_record_says_why_nothing_is_written(case):
    kind, tree, changed = NOT_WRITTEN[case]
    stored, _ = create(copy.deepcopy(tree), ask(), cluster(**{"a": 4, "b": 2, **changed}), kind)
    assert read_annotations(stored) == read_annotations(tree)
    holder = stored["spec"]
    for step in {JOBSET: ("replicatedJobs", 0, "template", "spec"), PYTORCH: ("pytorchReplicaSpecs", "Worker")}.get(
        kind, ()
    ):
        holder = holder[step]
    assert read_topology(holder)["reason"]["code"] == case.partition(",")[0]


def test_the_topology_with_the_most_levels_of_the_policy_is_named():
    named = {"hosts": (LEAF, HOST), "leaves": (SPINE, LEAF, HOST), "zones": ("zone", LEAF)}
    stored, _ = create(job(), ask("preferred"), cluster(named, a=4))
    assert read_annotations(stored)[TOPOLOGY] == "leaves"


def test_a_template_of_a_fabric_in_mode_warn_keeps_the_workload_unchanged():
    placed = f"transport: roce, rails: [{{name: rail0}}], placement: {{domains: [{LEAF}], gangTopology: required}}"
    by = admitting.policy(
        "apiVersion: railwright.io/v1alpha1\ndefaultFabric: f\n"
        f"fabrics:\n  f: {{{placed}}}\n  g: {{{placed}, mode: warn}}\n"
    )
    tree = pytorch_job()
    workers = tree["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]
    assert read_annotations(create(tree, by, cluster(a=4), PYTORCH)[0])
    workers["labels"]["railwright.io/fabric"] = "g"
    stored, _ = create(tree, by, cluster(a=4), PYTORCH)
    assert not read_annotations(stored)
    assert stored["spec"]["pytorchReplicaSpecs"]["Worker"] == tree["spec"]["pytorchReplicaSpecs"]["Worker"]


# --- form -----------------------------------------------------------------------------------------------------


def test_the_annotations_have_the_names_in_kais_source():
    source = (DATA / "constants.go").read_text()
    names = dict(re.findall(r'(\w+)\s+= "(.+)"', source))
    assert tuple(
        names[name]
        for name in (
            "TopologyKey",
            "TopologyRequiredPlacementKey",
            "TopologyPreferredPlacementKey",
            "MinMemberOverrideKey",
        )
    ) == (TOPOLOGY, REQUIRED, PREFERRED, SMALLEST)


def test_the_topologies_have_the_form_of_kais_definition():
    definition = yaml.safe_load((DATA / "topologies.yaml").read_text())["spec"]
    (version,) = definition["versions"]
    kind = resources.KAI_TOPOLOGIES
    assert kind.path == f"/apis/{definition['group']}/{version['name']}/{definition['names']['plural']}"
    validator = jsonschema.Draft202012Validator(version["schema"]["openAPIV3Schema"])
    validator.validate(build_topology("leaves", LEVELS["leaves"]))
    assert not validator.is_valid({"spec": {"levels": [{"label": LEAF}]}})


# --- segments ---------------------------------------------------------------------------------------------------


def test_workers_are_divided_into_segments():
    by = ask_for_segments(2)
    tree = pytorch_job()
    del tree["spec"]["pytorchReplicaSpecs"]["Master"]
    tree["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 4
    at = cluster(a=3, b=3)
    stored, _ = create(tree, by, at, PYTORCH)
    worker = stored["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]
    assert {key: value for key, value in worker.items() if key.startswith("kai.scheduler/")} == {
        "kai.scheduler/segment-size": "2",
        "kai.scheduler/segment-topology-required-placement": LEAF,
    }
    assert read_annotations(stored) == {TOPOLOGY: "leaves", REQUIRED: SPINE, PREFERRED: LEAF}
    assert "patch" not in review(stored, by, at, PYTORCH)
