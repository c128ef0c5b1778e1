"""Objects from which another controller makes pods: a label in them reaches the pods, and admission injects these."""

import copy
import pathlib

import pytest
import yaml
from admitting import admitted, fabric

from railwright.cli.explanation import templates
from railwright.fabric.lint import workloads

DATA = pathlib.Path(__file__).parents[2] / "data" / "sources"
FABRIC = "railwright.io/fabric"
GPUS = {"limits": {"nvidia.com/gpu": "8"}}


def read(name):
    return yaml.safe_load((DATA / f"{name}.yaml").read_text())


def runtime(place):
    """Return the runtime with GPUs and the label at a place of it."""
    tree = read("runtime")
    template = tree["spec"]["template"]
    (job,) = template["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = GPUS
    node = {"runtime": tree, "JobSet": template, "Job": job["template"], "pod": job["template"]["spec"]["template"]}
    node[place].setdefault("metadata", {}).setdefault("labels", {})[FABRIC] = "f"
    return tree


def cliques(*labelled):
    """Return the set with GPUs and the label on cliques."""
    tree = read("cliques")
    for clique in tree["spec"]["template"]["cliques"]:
        clique["spec"]["podSpec"]["containers"][0]["resources"] = GPUS
        if clique["name"] in labelled:
            clique["labels"] = {FABRIC: "f"}
    return tree


@pytest.mark.parametrize(("place", "label"), [("runtime", None), ("JobSet", "f"), ("Job", "f"), ("pod", "f")])
@pytest.mark.parametrize("kind", ["ClusterTrainingRuntime", "TrainingRuntime"])
def test_the_label_in_the_template_of_a_runtime_reaches_its_pods(kind, place, label):
    (template,) = templates.expand(runtime(place) | {"kind": kind}, "train")
    assert template.pod["metadata"]["labels"].get(FABRIC) == label
    assert (template.part, template.pods) == ("replicated job node", 1)
    if label:
        limits = admitted(template.pod, fabric())["spec"]["containers"][0]["resources"]["limits"]
        assert limits["nvidia.com/mlx5_0"] == "1"


@pytest.mark.parametrize(
    ("policy", "step", "pods"),
    [
        ({"numNodes": 16, "torch": {}}, "trainer", 16),
        ({"torch": {}}, "trainer", 1),
        (None, "trainer", 4),
        ({"numNodes": 16}, "dataset-initializer", 4),
        ({"numNodes": "16"}, "trainer", None),
    ],
)
def test_the_trainer_of_a_runtime_has_as_many_pods_as_its_policy_has_nodes(policy, step, pods):
    tree = runtime("JobSet")
    tree["spec"]["mlPolicy"] = policy
    (job,) = tree["spec"]["template"]["spec"]["replicatedJobs"]
    job["template"]["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}}
    job["template"]["spec"]["parallelism"] = 4
    assert [template.pods for template in templates.expand(tree, "train")] == [pods]
    assert [template.count for workload in workloads.read(tree) for template in workload.templates] == [pods]


def test_each_clique_opts_in_by_its_own_label():
    pods = templates.expand(cliques("pworker", "dworker"), "default")
    assert [(pod.part, pod.pods, pod.pod["metadata"].get("labels", {}).get(FABRIC)) for pod in pods] == [
        ("clique pleader", 1, None),
        ("clique pworker", 4, "f"),
        ("clique dleader", 1, None),
        ("clique dworker", 2, "f"),
    ]
    limits = admitted(pods[1].pod, fabric())["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/mlx5_0"] == "1"


def test_lint_reads_the_containers_of_cliques():
    tree = cliques("pworker")
    (workload,) = workloads.read(tree)
    assert [template.part for template in workload.templates] == ["pleader", "pworker", "dleader", "dworker"]
    path = workload.templates[1].container(0)
    node = copy.deepcopy(tree)
    for step in path:
        node = node[step]
    assert node["name"] == "prefill-worker"
    assert workload.templates[1].pod.metadata.labels == {FABRIC: "f"}
