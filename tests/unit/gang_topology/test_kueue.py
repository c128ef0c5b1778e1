"""The annotations for Kueue in a queued job, and the reasons for writing none."""

import copy
import json

import admitting
import pytest
import working
from topology_reviews import JOB, LEAF, SPINE, TOPOLOGY, ask, create, read_topology, review

MPI, PYTORCH = (working.ALL[name][0] for name in ("MPIJob.kubeflow.org/v2beta1", "PyTorchJob.kubeflow.org/v1"))
QUEUE = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
REQUIRED, PREFERRED, TOGETHER = (
    f"kueue.x-k8s.io/podset-{name}" for name in ("required-topology", "preferred-topology", "group-name")
)


def job(pods=4, *, metadata=QUEUE, annotations=None, **spec):
    template = working.build_template(label="f", annotations=annotations or {}, **spec)
    tree = working.build_workload(JOB, template, parallelism=pods, completions=pods)
    tree["metadata"] |= metadata
    return tree


def training_job(field, **replicas):
    """Return a job of Kubeflow with this number of pods of each role; those of a launcher have no GPUs."""
    templates = {
        role: working.build_template(admitting.cpu() if role == "Launcher" else admitting.gpus(8), label="f")
        for role in replicas
    }
    roles = {role: {"replicas": count, "template": templates[role]} for role, count in replicas.items()}
    return {"metadata": {"name": "w", "namespace": "prod", **QUEUE}, "spec": {field: roles}}


def read_annotations(holder):
    """Return Kueue's annotations of the template in a part of a workload."""
    annotations = holder["template"]["metadata"].get("annotations", {})
    return {key: text for key, text in annotations.items() if key.startswith("kueue.x-k8s.io/")}


@pytest.mark.parametrize(("mode", "key", "level"), [("preferred", PREFERRED, LEAF), ("required", REQUIRED, SPINE)])
def test_kueue_is_asked_for_the_closest_domain_if_preferred_and_for_the_widest_if_required(mode, key, level):
    stored, warnings = create(job(9), ask(mode))
    assert read_annotations(stored["spec"]) == {key: level}
    record = read_topology(stored["spec"])
    assert (record["scheduler"], record["mode"], record["level"]) == ("Kueue", mode, level)
    assert (record["annotations"], record["reason"]["code"]) == ([key], "TopologyRequested")
    assert not [line for line in warnings if "Topology" in line]


def test_kueue_gets_no_topology_if_the_domains_of_the_policy_are_hypernode_levels():
    stored, warnings = create(job(), ask(domains=("hypernode/level-1", "hypernode/level-2")))
    assert read_annotations(stored["spec"]) == {}
    assert read_topology(stored["spec"])["reason"]["code"] == "TopologyNoKey"
    (warning,) = [line for line in warnings if "Topology" in line]
    assert "name in placement.domains the key of a node label for Kueue" in warning


@pytest.mark.parametrize("mode", ["", '"off"'])
def test_a_job_gets_no_topology_if_the_policy_asks_for_none(mode):
    by = ask(mode) if mode else admitting.fabric(f"    placement: {{domains: [{LEAF}]}}\n")
    stored, _ = create(job(), by)
    assert "annotations" not in stored["spec"]["template"]["metadata"] or not read_annotations(stored["spec"])
    assert TOPOLOGY not in json.dumps(stored)


def test_a_job_of_one_pod_gets_no_topology():
    assert TOPOLOGY not in json.dumps(create(job(1), ask())[0])


def test_a_job_in_mode_warn_is_not_changed():
    placement = f"    placement: {{domains: [{LEAF}], gangTopology: required}}\n"
    assert "patch" not in review(job(), admitting.fabric(placement, top="mode: warn"))


OWNED = {"ownerReferences": [{"apiVersion": "v1", "kind": "TrainJob", "name": "t", "uid": "u", "controller": True}]}
CLAIMS = {"resourceClaims": [{"name": "c", "resourceClaimName": "x"}]}
NOT_WRITTEN = {
    "is set in the manifest": job(annotations={"kueue.x-k8s.io/podset-unconstrained-topology": "true"}),
    "Kueue accepts no topology for elastic jobs": job(
        metadata={**QUEUE, "annotations": {"kueue.x-k8s.io/elastic-job": "true"}}
    ),
    "TrainJob t controls the workload": job(metadata={**QUEUE, **OWNED}),
    "for devices in claims": job(**CLAIMS),
}


@pytest.mark.parametrize("mode", ["required", "preferred"])
@pytest.mark.parametrize("case", NOT_WRITTEN)
def test_topology_that_kueue_would_reject_is_not_written(case, mode):
    tree = NOT_WRITTEN[case]
    stored, warnings = create(tree, ask(mode))
    assert read_annotations(stored["spec"]) == read_annotations(tree["spec"])
    reason = read_topology(stored["spec"])["reason"]
    assert reason["code"] == "TopologyNotWritten"
    assert case in reason["message"]
    assert not [line for line in warnings if "Topology" in line]


SLICE, SIZE = "kueue.x-k8s.io/podset-slice-required-topology", "kueue.x-k8s.io/podset-slice-size"
SLICED = {SLICE: LEAF, SIZE: "2"}
CUT = {  # pods, segment, mode, annotations of the job, what is written
    "in leaves": (4, 2, "required", {}, {REQUIRED: SPINE, **SLICED}),
    "the last is smaller": (5, 3, "required", {}, {REQUIRED: SPINE}),
    "no segments": (4, 1, "required", {}, {REQUIRED: SPINE}),
    "soft": (4, 2, "preferred", {}, {PREFERRED: LEAF}),
    "fewer pods": (4, 2, "required", {"kueue.x-k8s.io/job-min-parallelism": "1"}, {REQUIRED: SPINE}),
}


@pytest.mark.parametrize("case", CUT)
def test_segments_become_kueue_slices_only_where_kueue_can_place_slices(case):
    pods, segment, mode, annotations, expected = CUT[case]
    tree = job(pods, metadata={**QUEUE, "annotations": annotations})
    stored, _ = create(tree, ask(mode, segment=segment))
    assert read_annotations(stored["spec"]) == expected
    reason = read_topology(stored["spec"])["reason"]
    is_left_out = expected == {REQUIRED: SPINE} and segment > 1
    assert (f"nothing asks it to keep each segment of {segment} ranks" in reason["message"]) == is_left_out


@pytest.mark.parametrize(
    ("masters", "by", "expected"),
    [
        (1, ask("preferred"), {PREFERRED: LEAF, TOGETHER: "railwright"}),
        (1, ask(segment=2), {REQUIRED: SPINE, TOGETHER: "railwright"}),  # without slices
        (2, ask("preferred"), {}),
    ],
    ids=["soft", "segments", "two templates of several pods"],
)
def test_master_and_workers_of_a_job_get_the_same_kueue_group(masters, by, expected):
    tree = training_job("pytorchReplicaSpecs", Master=masters, Worker=3)
    stored, _ = create(tree, by, PYTORCH)
    for role in stored["spec"]["pytorchReplicaSpecs"].values():
        assert read_annotations(role) == expected
    reason = read_topology(stored["spec"]["pytorchReplicaSpecs"]["Worker"])["reason"]
    assert reason["code"] == ("TopologyRequested" if expected else "TopologyNotWritten")
    assert expected or reason["message"].endswith("this job's 2 templates of ranks have 2 and 3 pods")


@pytest.mark.parametrize(("scheduler", "shown"), [("", "kube-scheduler"), ("kai-scheduler", "kai-scheduler")])
def test_a_job_without_a_queue_gets_no_annotation(scheduler, shown):
    stored, warnings = create(job(metadata={}, schedulerName=scheduler), ask())
    assert read_annotations(stored["spec"]) == {}
    assert read_topology(stored["spec"])["reason"] == {
        "code": "TopologyNotWritten",
        "message": f"railwright sets no topology constraint on a Job.batch that {shown} schedules",
    }
    assert not [line for line in warnings if "Topology" in line]


@pytest.mark.parametrize(
    ("kind", "owner"),
    [
        ("StatefulSet.apps", None),
        ("Deployment.apps", None),
        ("LeaderWorkerSet.leaderworkerset.x-k8s.io", None),
        ("PodCliqueSet.grove.io", None),
        ("RayCluster.ray.io", None),
        ("RayCluster.ray.io", "RayJob"),  # admission sees the cluster that KubeRay makes of it
    ],
)
def test_workloads_with_a_changing_number_of_pods_get_no_annotation(kind, owner):
    row = working.get_kind(kind)
    tree = working.build_workload(row, working.build_template(label="f"), replicas=4)
    tree["metadata"] |= QUEUE
    if owner is not None:
        reference = {"apiVersion": "ray.io/v1", "kind": owner, "name": "j", "uid": "u", "controller": True}
        tree["metadata"]["ownerReferences"] = [reference]
    for clique in tree["spec"].get("template", {}).get("cliques", ()):
        clique["spec"]["replicas"] = 4
    tree["spec"].get("leaderWorkerTemplate", {})["size"] = 4
    stored, warnings = create(tree, ask(), row)
    assert "kueue.x-k8s.io/podset" not in json.dumps(stored)
    assert r"\"code\":\"TopologyNotWritten\"" in json.dumps(stored)
    assert not [line for line in warnings if "Topology" in line]


# --- updates ----------------------------------------------------------------------------------------------


def test_an_update_with_a_topology_of_the_author_gets_no_second_topology():
    tree = training_job("pytorchReplicaSpecs", Worker=4)
    stored, _ = create(tree, ask("preferred"), PYTORCH)
    own = copy.deepcopy(tree)
    own["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"] = {REQUIRED: SPINE}
    for new, expected in ((tree, {PREFERRED: LEAF}), (own, {REQUIRED: SPINE})):
        updated, _ = create(new, ask("preferred"), PYTORCH, operation="UPDATE", oldObject=stored)
        assert read_annotations(updated["spec"]["pytorchReplicaSpecs"]["Worker"]) == expected


def test_the_unchanged_manifest_of_a_job_can_be_applied_again():
    written = job()
    written["spec"]["template"]["metadata"]["annotations"] = {TOPOLOGY: json.dumps({"scheduler": "Volcano"})}
    stored, _ = create(written, ask())
    assert read_topology(stored["spec"])["scheduler"] == "Kueue"
    updated, _ = create(written, ask(), operation="UPDATE", oldObject=stored)
    assert updated == stored


def test_an_update_of_a_job_without_topology_adds_none():
    old, _ = create(job(), ask('"off"'))
    assert "patch" not in review(old, ask(), operation="UPDATE", oldObject=old)
