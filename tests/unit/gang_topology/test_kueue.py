"""The annotations for Kueue: what the review of a queued job writes, when nothing is written, and why."""

import copy
import json

import admitting
import msgspec
import pytest
import working
from topology_reviews import HOST, JOB, LEAF, SPINE, ask, ask_for_segments, build_state, create, read_topology

from railwright.fabric import kueue

MPI, PYTORCH = (working.ALL[name][0] for name in ("MPIJob.kubeflow.org/v2beta1", "PyTorchJob.kubeflow.org/v1"))
QUEUE = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
REQUIRED, PREFERRED, TOGETHER = (
    f"kueue.x-k8s.io/podset-{name}" for name in ("required-topology", "preferred-topology", "group-name")
)
RESOURCES = ["cpu", "memory", "nvidia.com/gpu", "nvidia.com/mlx5_0", "nvidia.com/mlx5_1"]


def group(*flavors, resources=RESOURCES):
    return {"coveredResources": resources, "flavors": [{"name": name} for name in flavors]}


CLUSTER = {
    "LocalQueue": {"prod/q": {"clusterQueue": "cq"}},
    "ClusterQueue": {"cq": {"resourceGroups": [group("fast")]}},
    "ResourceFlavor": {
        "fast": {"topologyName": "leaves", "nodeLabels": {"pool": "train"}},
        "slow": {"topologyName": "leaves", "nodeLabels": {"pool": "slow"}},
        "plain": {},
        "hosts": {"topologyName": "hosts"},
    },
    "Topology": {
        "leaves": {"levels": [{"nodeLabel": label} for label in (SPINE, LEAF, HOST)]},
        "hosts": {"levels": [{"nodeLabel": HOST}]},
    },
}
VIEWS = {
    "LocalQueue": (kueue.LocalQueue, "local_queues"),
    "ClusterQueue": (kueue.ClusterQueue, "cluster_queues"),
    "ResourceFlavor": (kueue.ResourceFlavor, "flavors"),
    "Topology": (kueue.Topology, "topologies"),
}


def cluster(leaves=(4,), unlabelled=0, **changed):
    """Return the facts about leaves of these sizes, and the objects of CLUSTER with these changes by kind."""
    known = build_state(unlabelled, **{f"l{number}": size for number, size in enumerate(leaves)})
    for kind, (view, cache) in VIEWS.items():
        specs = {**CLUSTER[kind], **changed.get(kind, {})}
        metadata = [
            dict(zip(("name", "namespace"), reversed(["", *name.split("/")][-2:]), strict=True)) for name in specs
        ]
        trees = [
            {"metadata": data, "spec": spec}
            for data, spec in zip(metadata, specs.values(), strict=True)
            if spec is not None
        ]
        getattr(known, cache).replace([msgspec.convert(tree, view) for tree in trees])
    return known.build_topology_facts()


def queue_of(*groups):
    return {"ClusterQueue": {"cq": {"resourceGroups": list(groups)}}}


def job(pods=4, *, metadata=QUEUE, annotations=None, **spec):
    template = working.template(label="f", annotations=annotations or {}, **spec)
    tree = working.workload(JOB, template, parallelism=pods, completions=pods)
    tree["metadata"] |= metadata
    return tree


def training_job(field, **replicas):
    """Return a job of Kubeflow. Each role has so many pods, those of a launcher without GPUs."""
    templates = {
        role: working.template(admitting.cpu() if role == "Launcher" else admitting.gpus(8), label="f")
        for role in replicas
    }
    roles = {role: {"replicas": count, "template": templates[role]} for role, count in replicas.items()}
    return {"metadata": {"name": "w", "namespace": "prod", **QUEUE}, "spec": {field: roles}}


def read_annotations(holder):
    """Return Kueue's annotations of the template in a part of a workload."""
    annotations = holder["template"]["metadata"].get("annotations", {})
    return {key: text for key, text in annotations.items() if key.startswith("kueue.x-k8s.io/")}


def test_a_queued_job_prefers_the_lowest_level_of_its_queue():
    stored, warnings = create(job(9), ask("preferred"), cluster())
    assert read_annotations(stored["spec"]) == {PREFERRED: LEAF}
    record = read_topology(stored["spec"])
    assert (record["scheduler"], record["level"], record["annotations"]) == ("Kueue", LEAF, [PREFERRED])
    assert not [line for line in warnings if "Topology" in line]


@pytest.mark.parametrize(("leaves", "level"), [((4, 4), LEAF), ((2, 2), SPINE)])
def test_a_required_level_is_the_lowest_that_holds_the_gang(leaves, level):
    stored, _ = create(job(4), ask(), cluster(leaves))
    assert read_annotations(stored["spec"]) == {REQUIRED: level}


def test_only_nodes_with_all_labels_of_kueues_topology_count():
    """Kueue leaves out nodes without one of them (pkg/cache/scheduler/tas_nodes_cache.go)."""
    stored, _ = create(job(4), ask(), cluster(unlabelled=4))
    assert read_annotations(stored["spec"]) == {}
    assert read_topology(stored["spec"])["reason"]["code"] == "TopologyGangTooLarge"


def test_a_level_that_not_all_flavors_have_is_not_used():
    spines = {"levels": [{"nodeLabel": SPINE}, {"nodeLabel": HOST}]}
    at = cluster(**queue_of(group("fast", "slow")), Topology={"leaves": spines})
    assert read_annotations(create(job(), ask("preferred"), at)[0]["spec"]) == {PREFERRED: SPINE}


def test_resources_that_no_pod_requests_may_be_in_another_group():
    at = cluster(**queue_of(group("fast"), group("plain", resources=["example.com/license", "pods"])))
    assert read_annotations(create(job(), ask("preferred"), at)[0]["spec"]) == {PREFERRED: LEAF}


def test_a_launcher_without_devices_gets_no_annotation():
    tree = training_job("mpiReplicaSpecs", Launcher=1, Worker=4)
    stored, _ = create(tree, ask("preferred"), cluster(), MPI)
    roles = stored["spec"]["mpiReplicaSpecs"]
    assert read_annotations(roles["Worker"]) == {PREFERRED: LEAF}
    assert read_annotations(roles["Launcher"]) == {}


OWNED = {"ownerReferences": [{"apiVersion": "v1", "kind": "TrainJob", "name": "t", "uid": "u", "controller": True}]}
CLAIMS = {"resourceClaims": [{"name": "c", "resourceClaimName": "x"}]}
NOT_WRITTEN = {  # the job, the mode, what differs in the cluster
    "TopologyOfAuthor": (job(annotations={"kueue.x-k8s.io/podset-unconstrained-topology": "true"}), "preferred", {}),
    "TopologyElastic": (
        job(metadata={**QUEUE, "annotations": {"kueue.x-k8s.io/elastic-job": "true"}}),
        "preferred",
        {},
    ),
    "TopologyOfOwner": (job(metadata={**QUEUE, **OWNED}), "preferred", {}),
    "TopologyOfClaims": (job(**CLAIMS), "preferred", {}),
    "TopologyQueueUnknown, LocalQueue": (job(), "preferred", {"LocalQueue": {"prod/q": None, "other/q": {}}}),
    "TopologyQueueUnknown, ClusterQueue": (job(), "preferred", {"ClusterQueue": {"cq": None}}),
    "TopologyQueueUnknown, ResourceFlavor": (job(), "preferred", {"ResourceFlavor": {"fast": None}}),
    "TopologyQueueUnknown, Topology": (job(), "preferred", {"Topology": {"leaves": None}}),
    "TopologyNotInFlavor": (job(), "preferred", queue_of(group("fast", "plain"))),
    "TopologyNotInQueue": (job(), "preferred", queue_of(group("fast", "hosts"))),
    "TopologyNotInQueue, no flavor": (job(), "preferred", queue_of(group())),
    "TopologyQueueGroups, two": (
        job(),
        "preferred",
        queue_of(group("fast", resources=RESOURCES[2:]), group("plain", resources=["cpu"])),
    ),
    "TopologyQueueGroups, none": (job(), "preferred", queue_of(group("fast", resources=["example.com/license"]))),
    "TopologyGangTooLarge": (job(5), "required", {}),
    "TopologyGangTooLarge, on another flavor": (job(), "required", queue_of(group("fast", "slow"))),
    "TopologyCapacityUnknown": (job(), "required", queue_of(group(*["fast"] * 5))),
}


@pytest.mark.parametrize("case", NOT_WRITTEN)
def test_nothing_is_written_that_kueue_would_reject(case):
    tree, mode, changed = NOT_WRITTEN[case]
    stored, warnings = create(tree, ask(mode), cluster(**changed))
    assert read_annotations(stored["spec"]) == read_annotations(tree["spec"])
    code, _, detail = case.partition(", ")
    reason = read_topology(stored["spec"])["reason"]
    assert reason["code"] == code
    assert code != "TopologyQueueUnknown" or reason["parameters"]["kind"] == detail
    assert any(code in line for line in warnings) == (
        code in {"TopologyQueueUnknown", "TopologyGangTooLarge", "TopologyCapacityUnknown"}
    )


def test_an_annotation_of_any_template_keeps_all_of_them_as_they_are():
    tree = training_job("pytorchReplicaSpecs", Master=1, Worker=3)
    written = {"kueue.x-k8s.io/podset-slice-size": "1"}
    tree["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["metadata"]["annotations"] = written
    stored, _ = create(tree, ask("preferred"), cluster(), PYTORCH)
    roles = stored["spec"]["pytorchReplicaSpecs"]
    assert (read_annotations(roles["Master"]), read_annotations(roles["Worker"])) == (written, {})


SLICE, SIZE = "kueue.x-k8s.io/podset-slice-required-topology", "kueue.x-k8s.io/podset-slice-size"
SLICED = {SLICE: LEAF, SIZE: "2"}
CUT = {  # pods, segment, mode, annotations of the job, what is written; leaves have 3 nodes
    "in leaves": (4, 2, "required", {}, {REQUIRED: SPINE, **SLICED}),
    "in one leaf": (2, 2, "required", {}, {REQUIRED: LEAF}),
    "the last is smaller": (5, 3, "required", {}, {REQUIRED: SPINE}),
    "no segments": (4, 1, "required", {}, {REQUIRED: SPINE}),
    "soft": (4, 2, "preferred", {}, {PREFERRED: LEAF}),
    "fewer pods": (4, 2, "required", {"kueue.x-k8s.io/job-min-parallelism": "1"}, {REQUIRED: SPINE}),
    "no room": (6, 2, "required", {}, {}),
}


@pytest.mark.parametrize("case", CUT)
def test_segments_are_slices_where_kueue_can_place_them(case):
    pods, segment, mode, annotations, expected = CUT[case]
    tree = job(pods, metadata={**QUEUE, "annotations": annotations})
    stored, _ = create(tree, ask_for_segments(segment, mode), cluster((3, 3)))
    assert read_annotations(stored["spec"]) == expected
    reason = read_topology(stored["spec"])["reason"]
    is_left_out = expected == {REQUIRED: SPINE} and segment > 1
    assert (reason["parameters"].get("segment") or 0) == (segment if is_left_out else 0)


@pytest.mark.parametrize(
    ("masters", "by", "expected"),
    [
        (1, ask("preferred"), {PREFERRED: LEAF, TOGETHER: "railwright"}),
        (1, ask_for_segments(2), {REQUIRED: SPINE, TOGETHER: "railwright"}),  # without slices
        (2, ask("preferred"), {}),
    ],
    ids=["soft", "segments", "two templates of several pods"],
)
def test_a_master_and_its_workers_are_one_group(masters, by, expected):
    tree = training_job("pytorchReplicaSpecs", Master=masters, Worker=3)
    stored, _ = create(tree, by, cluster((3, 3)), PYTORCH)
    for role in stored["spec"]["pytorchReplicaSpecs"].values():
        assert read_annotations(role) == expected


def test_the_queue_is_that_of_the_namespace_of_the_review():
    tree = job()
    del tree["metadata"]["namespace"]
    assert read_annotations(create(tree, ask("preferred"), cluster())[0]["spec"]) == {PREFERRED: LEAF}


def test_a_job_without_a_queue_gets_no_annotation():
    stored, _ = create(job(metadata={}), ask("preferred"), cluster())
    assert read_annotations(stored["spec"]) == {}


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
def test_kinds_whose_pods_come_and_go_get_no_annotation(kind, owner):
    row = working.kind(kind)
    tree = working.workload(row, working.template(label="f"), replicas=4)
    tree["metadata"] |= QUEUE
    if owner is not None:
        reference = {"apiVersion": "ray.io/v1", "kind": owner, "name": "j", "uid": "u", "controller": True}
        tree["metadata"]["ownerReferences"] = [reference]
    for clique in tree["spec"].get("template", {}).get("cliques", ()):
        clique["spec"]["replicas"] = 4
    tree["spec"].get("leaderWorkerTemplate", {})["size"] = 4
    stored, warnings = create(tree, ask(), cluster(), row)
    assert "kueue.x-k8s.io/podset" not in json.dumps(stored)
    assert r"\"code\":\"TopologyNoField\"" in json.dumps(stored)
    assert not [line for line in warnings if "Topology" in line]


def test_the_second_review_of_a_creation_writes_nothing():
    stored, _ = create(job(), ask("preferred"), cluster())
    assert create(stored, ask(), cluster())[0] == stored


def test_an_update_with_its_own_topology_keeps_it_alone():
    tree = training_job("pytorchReplicaSpecs", Worker=4)
    stored, _ = create(tree, ask("preferred"), cluster(), PYTORCH)
    own = copy.deepcopy(tree)
    own["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"] = {REQUIRED: SPINE}
    for new, expected in ((tree, {PREFERRED: LEAF}), (own, {REQUIRED: SPINE})):
        updated, _ = create(new, ask("preferred"), cluster(), PYTORCH, operation="UPDATE", oldObject=stored)
        assert read_annotations(updated["spec"]["pytorchReplicaSpecs"]["Worker"]) == expected
