"""Templates of each kind get devices and mounts, and their pods then need no further devices and mounts."""

import admitting
import pytest
import working
from admitting import cpu, fabric, messages

from railwright.fabric.injection import pod_changes
from railwright.fabric.workloads import registry

FABRIC = "railwright.io/fabric"
BY = fabric(
    "    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n    nccl: {delivery: both}\n",
    top="roles: {volcanoTasks: {ps: never, default1: never}}\n",
)
DEPLOYMENT, VOLCANO = working.kind("Deployment.apps"), working.kind("Job.batch.volcano.sh")
MPI_V1, MPI_V2 = (kind for kind in registry.INJECTED_KINDS if kind.name == "MPIJob")
JOBSET, RAY = working.kind("JobSet.jobset.x-k8s.io"), working.kind("RayCluster.ray.io")


def devices(row, tree, by=BY, at=None) -> list[bool]:
    """For each template: whether it gets devices."""
    return [
        any(isinstance(change, pod_changes.AddResource) for change in plan.changes)
        for plan in working.planned(row, tree, by, at)
    ]


def test_the_table_has_each_kind_once():
    assert sorted((kind.group, *kind.versions, kind.name) for kind in registry.INJECTED_KINDS) == sorted(
        [
            ("apps", "v1", "Deployment"),
            ("apps", "v1", "StatefulSet"),
            ("batch", "v1", "Job"),
            ("batch.volcano.sh", "v1alpha1", "Job"),
            ("kubeflow.org", "v2beta1", "MPIJob"),
            ("kubeflow.org", "v1", "MPIJob"),
            ("kubeflow.org", "v1", "PyTorchJob"),
            ("kubeflow.org", "v1", "TFJob"),
            ("kubeflow.org", "v1", "XGBoostJob"),
            ("kubeflow.org", "v1", "PaddleJob"),
            ("kubeflow.org", "v1", "JAXJob"),
            ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
            ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
            ("ray.io", "v1", "RayCluster"),
        ]
    )

    assert registry.find_injected("apps", "v1", "ReplicaSet") is None
    assert registry.find_injected("kubeflow.org", "v2beta1", "PyTorchJob") is None


@pytest.mark.parametrize("row", registry.INJECTED_KINDS, ids=lambda row: f"{row.display_name}-{row.versions[0]}")
def test_every_kind_gets_devices_and_mounts_in_its_templates_and_nothing_else(row):
    tree = working.workload(row, working.template(label="f"), name="Worker")
    after = working.patched(row, tree, BY)
    templates = working.read(row, after).templates
    assert len(templates) == len(row.templates)
    for template in templates:
        before, now = working.at(tree, template.pointer), working.at(after, template.pointer)
        assert now["metadata"] == before["metadata"]
        (container,) = now["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/mlx5_0"] == "1"
        assert container["volumeMounts"] == [{"name": "railwright-shm", "mountPath": "/dev/shm"}]
        assert [volume["name"] for volume in now["spec"]["volumes"]] == ["railwright-shm"]
        assert not {"env", "securityContext"} & container.keys()


@pytest.mark.parametrize("row", registry.INJECTED_KINDS, ids=lambda row: f"{row.display_name}-{row.versions[0]}")
def test_the_label_of_the_workload_is_copied_into_each_template_that_has_none(row):
    after = working.patched(row, working.workload(row, working.template(), name="Worker", label="f"), BY)
    for template in working.read(row, after).templates:
        assert working.at(after, template.pointer)["metadata"]["labels"] == {FABRIC: "f"}
        assert (
            "nvidia.com/mlx5_0" in working.at(after, template.pointer)["spec"]["containers"][0]["resources"]["limits"]
        )


@pytest.mark.parametrize(("own", "above", "stored", "given"), [("none", "f", "none", False), ("f", "none", "f", True)])
def test_the_label_of_a_template_wins_and_none_is_one_too(own, above, stored, given):
    tree = working.workload(DEPLOYMENT, working.template(label=own), label=above)
    assert devices(DEPLOYMENT, tree) == [given]
    assert working.patched(DEPLOYMENT, tree, BY)["spec"]["template"]["metadata"]["labels"][FABRIC] == stored


def test_none_on_a_workload_is_copied_so_that_its_pods_stay_out_of_a_namespace_that_opts_in():
    at = admitting.known(namespace_labels={FABRIC: "f"})
    tree = working.workload(DEPLOYMENT, working.template(), label="none")
    after = working.patched(DEPLOYMENT, tree, BY, at)
    assert after["spec"]["template"] == working.template(label="none")


def test_the_nearest_label_above_a_job_sets_template_counts():
    tree = working.workload(JOBSET, working.template(), label="f")
    (job,) = tree["spec"]["replicatedJobs"]
    job["template"]["metadata"] = {"labels": {FABRIC: "none"}}
    assert devices(JOBSET, tree) == [False]
    assert working.patched(JOBSET, tree, BY)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"][
        "labels"
    ] == {FABRIC: "none"}


def test_in_a_namespace_that_opts_in_templates_with_accelerators_get_devices_and_no_label():
    at = admitting.known(namespace_labels={FABRIC: "f"})
    assert devices(DEPLOYMENT, working.workload(DEPLOYMENT, working.template()), at=at) == [True]
    assert devices(DEPLOYMENT, working.workload(DEPLOYMENT, working.template(cpu())), at=at) == [False]
    after = working.patched(DEPLOYMENT, working.workload(DEPLOYMENT, working.template()), BY, at)
    assert "labels" not in after["spec"]["template"]["metadata"]


# What the controller will call the pod decides, not what the template's author calls it.
MASTER = {"plugins": {"mpi": ["--master=boss", "--worker=worker"], "ssh": []}}
ROLES = {
    "mpi-operator launcher": (MPI_V2, "Launcher", {}, {}, [False]),
    "mpi-operator worker": (MPI_V2, "Worker", {}, {}, [True]),
    "forged worker": (MPI_V2, "Launcher", {}, {"training.kubeflow.org/job-role": "worker"}, [False]),
    "forged launcher": (MPI_V2, "Worker", {}, {"training.kubeflow.org/job-role": "launcher"}, [True]),
    "forged index": (MPI_V2, "Launcher", {}, {"training.kubeflow.org/replica-type": "worker"}, [False]),
    "volcano mpi master": (VOLCANO, "boss", MASTER, {}, [False]),
    "volcano mpi worker": (VOLCANO, "worker", MASTER, {}, [True]),
    "volcano default master": (VOLCANO, "master", {"plugins": {"mpi": None}}, {}, [False]),
    "volcano master in two words": (VOLCANO, "boss", {"plugins": {"mpi": ["-master", "boss"]}}, {}, [False]),
    "volcano without mpi": (VOLCANO, "master", {"plugins": {"ssh": []}}, {}, [True]),
    "volcano task of the policy": (VOLCANO, "ps", {}, {"volcano.sh/task-spec": "worker"}, [False]),
    "jobset initializer": (JOBSET, "model-initializer", {}, {}, [False]),
    "jobset forged worker": (JOBSET, "launcher", {}, {"jobset.sigs.k8s.io/replicatedjob-name": "node"}, [False]),
    "ray head and worker": (RAY, "cpu-group", {}, {}, [False, False]),
}


@pytest.mark.parametrize(("row", "name", "spec", "labels", "expected"), ROLES.values(), ids=ROLES)
def test_the_role_the_controller_gives_decides_and_a_forged_label_widens_nothing(row, name, spec, labels, expected):
    written = working.template(cpu(), label="f")
    written["metadata"]["labels"] |= labels
    assert devices(row, working.workload(row, written, name=name, **spec)) == expected


def test_a_ray_head_cannot_be_forged_into_a_worker_that_an_annotation_makes_a_rank():
    written = working.template(cpu(), label="f")
    written["metadata"]["labels"]["ray.io/node-type"] = "worker"
    written["metadata"]["annotations"] = {"railwright.io/containers": "c"}
    assert devices(RAY, working.workload(RAY, written, name="cpu-group")) == [False, True]


def test_a_launcher_with_accelerators_is_a_rank_and_gets_devices():
    tree = working.workload(MPI_V2, working.template(label="f"), name="Launcher")
    assert devices(MPI_V2, tree) == [True]
    assert devices(MPI_V1, working.workload(MPI_V1, working.template(label="f"), name="Worker")) == [True]


def test_an_unnamed_volcano_task_has_the_name_volcano_will_give_it():
    tree = working.workload(VOLCANO, working.template(label="f"), name="")
    tree["spec"]["tasks"] = [dict(tree["spec"]["tasks"][0]) for _ in range(2)]
    assert devices(VOLCANO, tree) == [True, False]  # default0, default1


def test_a_refusal_names_the_workload_the_template_and_the_fix():
    tree = working.workload(VOLCANO, working.template(label="g"))
    (refusal,) = working.planned(VOLCANO, tree, BY)
    assert isinstance(refusal, pod_changes.Refusal)
    assert refusal.message.startswith("W prod/w: spec.tasks[worker].template: label railwright.io/fabric 'g'")
    assert "allowed are f, default, none" in refusal.message


@pytest.mark.parametrize(
    ("by", "at", "expected"),
    [
        (BY, admitting.known(networks={}), "NetworkAttachmentDefinition prod/lan2"),
        (
            fabric("    namespaces: {matchLabels: {team: a}}\n"),
            admitting.known(namespace_labels=None),
            "labels of namespace prod are not known yet",
        ),
    ],
)
def test_what_may_have_passed_when_the_pod_comes_is_a_warning_and_the_label_is_copied(by, at, expected):
    (given_,) = working.planned(DEPLOYMENT, working.workload(DEPLOYMENT, working.template(), label="f"), by, at)
    assert [type(change) for change in given_.changes] == [pod_changes.SetLabel]
    assert expected in messages(given_)[0]
    assert "its pods are rejected until then" in messages(given_)[0]


def test_warnings_say_of_which_template():
    at = admitting.known(offered=frozenset())
    (given_,) = working.planned(VOLCANO, working.workload(VOLCANO, working.template(label="f")), BY, at)
    assert messages(given_)[0].startswith("spec.tasks[worker].template: ")
    assert "no node offers nvidia.com/mlx5_0" in messages(given_)[0]
