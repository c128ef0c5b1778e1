"""The pods that a controller creates for a workload: names, numbers, and the labels that determine a role."""

import contextlib
import pathlib

import admitting
import pytest

from railwright.cli import object_files, output
from railwright.cli.explanation import templates
from railwright.fabric.injection import accelerators, context
from railwright.fabric.workloads import registry

TEXT = (pathlib.Path(__file__).parents[2] / "data" / "manifests" / "workloads.yaml").read_text()
WORKER, LAUNCHER = "worker", "launcher"


def expand_all() -> dict[tuple[str, str], templates.Template]:
    every = [
        template
        for tree in object_files.read_manifest(TEXT, "f")
        for template in templates.list_templates(tree, "default")
    ]
    keyed = {(template.owner, template.part): template for template in every}
    assert len(keyed) == len(every)
    return keyed


def role(template: templates.Template) -> str:
    view = admitting.decode_pod(template.pod)
    return context.find_role(
        view, is_accelerated=bool(accelerators.find_accelerated_containers(view, ("nvidia.com/gpu",)))
    ).name


def name(template: templates.Template) -> str:
    metadata = template.pod["metadata"]
    return metadata.get("name") or metadata["generateName"] + "*"


def test_templates_of_all_kinds_are_found_with_the_name_number_and_role_of_their_pods():
    assert {key: (name(template), template.pods, role(template)) for key, template in expand_all().items()} == {
        ("Deployment prod/web", ""): ("web-*", 3, WORKER),
        ("ReplicaSet prod/set", ""): ("set-*", 1, WORKER),
        ("ReplicationController prod/old", ""): ("old-*", 1, WORKER),
        ("StatefulSet prod/db", ""): ("db-0", 1, WORKER),
        ("DaemonSet prod/every", ""): ("every-*", None, WORKER),
        ("Job prod/once", ""): ("once-0-*", 2, WORKER),
        ("CronJob prod/nightly", ""): ("nightly-*", 1, WORKER),
        ("Job prod/mpi", "task mpimaster"): ("mpi-mpimaster-0", 1, LAUNCHER),
        ("Job prod/mpi", "task mpiworker"): ("mpi-mpiworker-0", 4, WORKER),
        ("Job prod/plain", "task default0"): ("plain-default0-0", 1, WORKER),
        ("PyTorchJob prod/torch", "replica Master"): ("torch-master-0", 1, WORKER),
        ("PyTorchJob prod/torch", "replica Worker"): ("torch-worker-0", 3, WORKER),
        ("TFJob prod/tf", "replica Worker"): ("tf-worker-0", 1, WORKER),
        ("XGBoostJob prod/xgb", "replica Worker"): ("xgb-worker-0", 1, WORKER),
        ("PaddleJob prod/paddle", "replica Worker"): ("paddle-worker-0", 1, WORKER),
        ("JAXJob prod/jax", "replica Worker"): ("jax-worker-0", 1, WORKER),
        ("MPIJob prod/horovod", "replica Launcher"): ("horovod-launcher-*", 1, LAUNCHER),
        ("MPIJob prod/horovod", "replica Worker"): ("horovod-worker-0", 4, WORKER),
        ("JobSet prod/js", "replicated job workers"): ("js-workers-0-*", 8, WORKER),
        ("LeaderWorkerSet prod/lws", "leader"): ("lws-0", 2, WORKER),
        ("LeaderWorkerSet prod/lws", "worker"): ("lws-0-1", 6, WORKER),
        ("ClusterTrainingRuntime prod/every-team", "replicated job node"): ("every-team-node-0-*", 1, WORKER),
        ("TrainingRuntime prod/runtime", "replicated job node"): ("runtime-node-0-*", 1, WORKER),
        ("PodCliqueSet prod/serve", "clique decode"): ("serve-0-decode-*", 2, "excluded"),
        ("DynamoGraphDeployment prod/graph", "component Decode"): ("graph-decode-*", 2, "excluded"),
        **{
            (f"{kind} prod/{kind.lower().removesuffix('cluster')}", part): (pod, pods, word)
            for kind in ("RayCluster", "RayJob", "RayService")
            for part, pod, pods, word in (
                ("head", f"{kind.lower().removesuffix('cluster')}-head-*", 1, "head"),
                ("worker group gpus", f"{kind.lower().removesuffix('cluster')}-gpus-worker-*", 2, WORKER),
            )
        },
    }


@pytest.mark.parametrize(("completions", "pods"), [(None, 8), (8, 8), (16, 8), (2, 2)])
def test_a_job_creates_no_more_pods_than_completions(completions, pods):
    spec = {"parallelism": 8, "completions": completions, "template": {"spec": {"containers": [{"name": "c"}]}}}
    tree = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    (template,) = templates.list_templates(tree, "prod")
    assert template.pods == pods


def test_the_example_file_has_a_workload_of_each_registered_kind():
    assert {kind.name for kind in (*registry.KINDS, *registry.SOURCES)} == {key[0].split()[0] for key in expand_all()}


@pytest.mark.parametrize("spec", [None, 7, [], {"template": 7}, {"tasks": {}}, {"tasks": [7, None, {"template": []}]}])
def test_a_malformed_workload_yields_no_pods(spec):
    for group, kind in {*((kind.group, kind.name) for kind in registry.KINDS), ("", "Pod")}:
        tree = {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, "metadata": 7, "spec": spec}
        with contextlib.suppress(output.UnreadableError):
            assert isinstance(templates.list_templates(tree, "default"), list), kind


def test_a_workload_that_the_api_server_would_reject_is_named_with_its_position():
    tree = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"tasks": [7]}}
    with pytest.raises(output.UnreadableError, match=r"^Job prod/j: spec\.tasks\[0\]: "):
        templates.list_templates(tree, "prod")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a: [", "is not YAML"), ("7", "expected an object"), ("kind: 7", "expected an object"), ("[]", "object")],
)
def test_an_error_about_a_file_that_is_no_manifest_names_the_file(text, expected):
    with pytest.raises(output.UnreadableError, match=r"^FILE: ") as error:
        object_files.read_manifest(text, "FILE")
    assert expected in str(error.value)


def test_lists_are_split_into_their_items_and_empty_documents_are_skipped():
    text = "---\n---\nkind: List\nitems: [{kind: PodList, items: [{kind: A}]}, {kind: B}]\n---\n"
    assert [document["kind"] for document in object_files.read_manifest(text, "f")] == ["A", "B"]
    deep = "{kind: List, items: [" * 500 + "{kind: A}" + "]}" * 500
    with pytest.raises(output.UnreadableError, match="nested"):
        object_files.read_manifest(deep, "f")


def test_the_pod_of_a_stateful_set_has_volumes_for_its_volume_claim_templates():
    mount = {"name": "data", "mountPath": "/data"}
    spec = {
        "template": {"spec": {"containers": [{"name": "c", "volumeMounts": [mount]}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
    }
    tree = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}
    (template,) = templates.list_templates(tree, "prod")
    assert template.pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]
    assert template.path == ("spec", "template")


LABEL = {"railwright.io/fabric": "roce"}


@pytest.mark.parametrize(
    ("kind", "version", "steps", "path"),
    [
        ("CronJob", "batch/v1", ("jobTemplate", "spec", "template"), "spec.jobTemplate.spec.template"),
        ("DaemonSet", "apps/v1", ("template",), "spec.template"),
        ("ReplicaSet", "apps/v1", ("template",), "spec.template"),
    ],
)
def test_a_label_without_effect_is_reported_with_its_correct_place(kind, version, steps, path):
    def build(labels: dict) -> dict:
        spec: dict = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        for step in reversed(steps):
            spec = {step: spec}
        return {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "labels": LABEL}, "spec": spec}

    (template,) = templates.list_templates(build({}), "default")
    (warning,) = template.warnings
    assert warning.code == "LabelNotPassed"
    assert f"of the {kind} has no effect" in warning.message
    assert warning.text.endswith(f"set the label in {path}.metadata.labels")
    (template,) = templates.list_templates(build(LABEL), "default")
    assert template.warnings == ()
