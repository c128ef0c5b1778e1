"""Templates of each kind get devices and mounts, and their pods then need no further devices and mounts."""

import json

import admitting
import pytest
import working
from admitting import cpu, fabric, list_messages

from railwright.fabric.workloads import registry

FABRIC = "railwright.io/fabric"
BY = fabric("    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n")
DEPLOYMENT, VOLCANO = working.get_kind("Deployment.apps"), working.get_kind("Job.batch.volcano.sh")
MPI_V1, MPI_V2 = (kind for kind in registry.INJECTED_KINDS if kind.name == "MPIJob")
JOBSET, RAY = working.get_kind("JobSet.jobset.x-k8s.io"), working.get_kind("RayCluster.ray.io")


LABEL_POINTER = "railwright.io~1fabric"


def list_paths(plan) -> list[str]:
    """Return the paths of the operations of a template's changes."""
    return [operation["path"] for change in plan.changes for operation in change.operations]


def check_devices(row, tree, at=None) -> list[bool]:
    """Return True for each template that gets devices, else False."""
    return [
        any("/resources/" in path for path in list_paths(plan)) for plan in working.plan_templates(row, tree, BY, at)
    ]


@pytest.mark.parametrize("row", registry.INJECTED_KINDS, ids=lambda row: f"{row.display_name}-{row.version}")
def test_templates_of_every_kind_get_only_devices_and_mounts(row):
    tree = working.build_workload(row, working.build_template(label="f"), name="Worker")
    after = working.apply_patch(row, tree, BY)
    templates = working.read(row, after).templates
    assert len(templates) == len(row.templates)
    for template in templates:
        before, now = (
            template.origin.path.read_template(working.resolve_pointer(stored, template.pointer))
            for stored in (tree, after)
        )
        assert now["metadata"] == before["metadata"]
        (container,) = now["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/mlx5_0"] == "1"
        assert container["volumeMounts"] == [{"name": "railwright-shm", "mountPath": "/dev/shm"}]
        assert [volume["name"] for volume in now["spec"]["volumes"]] == ["railwright-shm"]
        assert not {"env", "securityContext"} & container.keys()


@pytest.mark.parametrize("row", [DEPLOYMENT, MPI_V2, JOBSET, RAY], ids=lambda row: row.display_name)
def test_the_label_of_the_workload_is_copied_into_each_template_that_has_none(row):
    after = working.apply_patch(
        row, working.build_workload(row, working.build_template(), name="Worker", label="f"), BY
    )
    for template in working.read(row, after).templates:
        assert template.pod.metadata.labels == {FABRIC: "f"}
        assert "nvidia.com/mlx5_0" in (template.pod.spec.containers[0].resources.limits or {})


@pytest.mark.parametrize(("own", "above", "stored", "given"), [("none", "f", "none", False), ("f", "none", "f", True)])
def test_the_label_of_a_template_takes_precedence_even_if_it_is_none(own, above, stored, given):
    tree = working.build_workload(DEPLOYMENT, working.build_template(label=own), label=above)
    assert check_devices(DEPLOYMENT, tree) == [given]
    assert working.apply_patch(DEPLOYMENT, tree, BY)["spec"]["template"]["metadata"]["labels"][FABRIC] == stored


def test_the_label_closest_to_a_pod_template_takes_precedence():
    tree = working.build_workload(JOBSET, working.build_template(), label="f")
    (job,) = tree["spec"]["replicatedJobs"]
    job["template"]["metadata"] = {"labels": {FABRIC: "none"}}
    assert check_devices(JOBSET, tree) == [False]
    assert working.apply_patch(JOBSET, tree, BY)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"][
        "metadata"
    ]["labels"] == {FABRIC: "none"}


def test_templates_with_accelerators_in_an_opted_in_namespace_get_devices_but_no_label():
    at = admitting.build_facts(namespace_labels={FABRIC: "f"})
    assert check_devices(DEPLOYMENT, working.build_workload(DEPLOYMENT, working.build_template()), at=at) == [True]
    assert check_devices(DEPLOYMENT, working.build_workload(DEPLOYMENT, working.build_template(cpu())), at=at) == [
        False
    ]
    after = working.apply_patch(DEPLOYMENT, working.build_workload(DEPLOYMENT, working.build_template()), BY, at)
    assert "labels" not in after["spec"]["template"]["metadata"]


# What the controller will call the pod decides, not what the template's author calls it.
MASTER = {"plugins": {"mpi": ["--master=boss", "--worker=worker"], "ssh": []}}
ROLES = {
    "mpi-operator launcher": (MPI_V2, "Launcher", {}, {}, ["launcher"]),
    "mpi-operator worker": (MPI_V2, "Worker", {}, {}, ["excluded"]),
    "forged worker": (MPI_V2, "Launcher", {}, {"training.kubeflow.org/job-role": "worker"}, ["launcher"]),
    "forged launcher": (MPI_V2, "Worker", {}, {"training.kubeflow.org/job-role": "launcher"}, ["excluded"]),
    "forged index": (MPI_V2, "Launcher", {}, {"training.kubeflow.org/replica-type": "worker"}, ["launcher"]),
    "volcano mpi master": (VOLCANO, "boss", MASTER, {}, ["launcher"]),
    "volcano mpi worker": (VOLCANO, "worker", MASTER, {}, ["excluded"]),
    "volcano default master": (VOLCANO, "master", {"plugins": {"mpi": None}}, {}, ["launcher"]),
    "volcano master in two words": (VOLCANO, "boss", {"plugins": {"mpi": ["-master", "boss"]}}, {}, ["launcher"]),
    "volcano without mpi": (VOLCANO, "master", {"plugins": {"ssh": []}}, {}, ["launcher"]),
    "jobset forged worker": (JOBSET, "launcher", {}, {"jobset.sigs.k8s.io/replicatedjob-name": "node"}, ["launcher"]),
    "ray head and worker": (RAY, "cpu-group", {}, {}, ["head", "excluded"]),
}


def list_roles(row, tree) -> list[str]:
    return [plan.injection.role for plan in working.plan_templates(row, tree, BY)]


def test_a_forged_role_label_does_not_replace_the_role_set_by_the_controller():
    found = {}
    for case, (row, name, spec, labels, _) in ROLES.items():
        written = working.build_template(cpu(), label="f")
        written["metadata"]["labels"] |= labels
        tree = working.build_workload(row, written, name=name, **spec)
        found[case] = list_roles(row, tree)
        assert not any(check_devices(row, tree)), case
    assert found == {case: expected for case, (*_, expected) in ROLES.items()}


def test_a_container_that_the_author_names_is_a_rank_in_any_role():
    written = working.build_template(cpu(), label="f")
    written["metadata"]["annotations"] = {"railwright.io/containers": "c"}
    tree = working.build_workload(RAY, written, name="cpu-group")
    assert (check_devices(RAY, tree), list_roles(RAY, tree)) == ([True, True], ["head", "worker"])


def test_an_unnamed_volcano_task_has_the_name_volcano_will_give_it():
    tree = working.build_workload(
        VOLCANO, working.build_template(cpu(), label="f"), name="", plugins={"mpi": ["--master=default1"]}
    )
    tree["spec"]["tasks"] = [dict(tree["spec"]["tasks"][0]) for _ in range(2)]
    assert list_roles(VOLCANO, tree) == ["excluded", "launcher"]  # default0, default1


@pytest.mark.parametrize(
    ("by", "at", "expected"),
    [
        (BY, admitting.build_facts(networks={}), "NetworkAttachmentDefinition prod/lan2"),
        (
            fabric("    namespaces: {team: a}\n"),
            admitting.build_facts(namespace_labels=None, watched=True),
            "labels of namespace prod are not known yet",
        ),
    ],
)
def test_templates_get_the_label_and_a_warning_if_a_network_is_missing_or_the_namespace_is_unknown(by, at, expected):
    (given_,) = working.plan_templates(
        DEPLOYMENT, working.build_workload(DEPLOYMENT, working.build_template(), label="f"), by, at
    )
    assert list_paths(given_)[-1] == f"/metadata/labels/{LABEL_POINTER}"
    assert len(given_.changes) == 1
    assert expected in list_messages(given_)[0]
    assert "pods are rejected until this is solved" in list_messages(given_)[0]


CLAIM = {"metadata": {"name": "railwright-shm"}, "spec": {"accessModes": ["ReadWriteOnce"]}}


@pytest.mark.parametrize(
    ("row", "spec"),
    [
        (working.get_kind("StatefulSet.apps"), {"volumeClaimTemplates": [CLAIM]}),
        (JOBSET, {"volumeClaimPolicies": [{"templates": [CLAIM]}]}),
    ],
    ids=["StatefulSet", "JobSet"],
)
def test_a_volume_claim_template_named_like_railwrights_volume_is_refused(row, spec):
    (refused,) = working.plan_templates(row, working.build_workload(row, working.build_template(label="f"), **spec), BY)
    assert refused.reason == "name-taken"
    assert "volume named railwright-shm" in refused.message
    assert "claim template" in refused.message
    other = json.loads(json.dumps(spec).replace("railwright-shm", "scratch"))
    (planned,) = working.plan_templates(
        row, working.build_workload(row, working.build_template(label="f"), **other), BY
    )
    assert "/spec/volumes/-" in list_paths(planned)


def test_a_volume_of_a_volcano_job_at_dev_shm_is_kept():
    tree = working.build_workload(
        VOLCANO, working.build_template(label="f"), volumes=[{"mountPath": "/dev/shm/", "volumeClaimName": "x"}]
    )
    (planned,) = working.plan_templates(VOLCANO, tree, BY)
    assert not [path for path in list_paths(planned) if "volume" in path]


def test_a_volcano_template_gets_a_mount_beside_the_volumes_of_its_job():
    """The list to which the mount is added does not exist in the template."""
    volumes = [{"mountPath": "/data", "volumeClaimName": "x"}]
    tree = working.build_workload(VOLCANO, working.build_template(label="f"), volumes=volumes)
    spec = working.apply_patch(VOLCANO, tree, BY)["spec"]["tasks"][0]["template"]["spec"]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "railwright-shm", "mountPath": "/dev/shm"}]
    assert [volume["name"] for volume in spec["volumes"]] == ["railwright-shm"]


def test_a_workload_with_malformed_volume_claim_templates_gets_its_devices():
    for malformed in (None, 7, "x", {}, [None, 7, {"metadata": None}, {"metadata": {"name": 7}}]):
        for row, spec in (
            (working.get_kind("StatefulSet.apps"), {"volumeClaimTemplates": malformed}),
            (JOBSET, {"volumeClaimPolicies": malformed}),
            (JOBSET, {"volumeClaimPolicies": [{"templates": malformed}]}),
            (VOLCANO, {"volumes": malformed}),
        ):
            assert check_devices(row, working.build_workload(row, working.build_template(label="f"), **spec)) == [
                True
            ], spec


# --- templates without accelerators beside templates with them -----------------------------------------------

LWS = working.get_kind("LeaderWorkerSet.leaderworkerset.x-k8s.io")
PYTORCH = working.get_kind("PyTorchJob.kubeflow.org")


def build_pair(row, first: dict, second: dict, **metadata) -> dict:
    """Return a workload of two templates; the second has GPUs, the first only those in `first`."""
    one, two = working.build_template(first), working.build_template(second)
    one["metadata"] |= metadata
    if row is LWS:
        spec = {"leaderWorkerTemplate": {"size": 3, "leaderTemplate": one, "workerTemplate": two}}
    elif row is PYTORCH:
        spec = {"pytorchReplicaSpecs": {"Master": {"template": one}, "Worker": {"template": two}}}
    elif row is RAY:
        groups = [{"groupName": name, "template": template} for name, template in (("a", one), ("b", two))]
        spec = {"headGroupSpec": {"template": working.build_template(cpu())}, "workerGroupSpecs": groups}
    else:
        jobs = [{"name": name, "template": {"spec": {"template": one}}} for name in ("driver",)]
        jobs.append({"name": "workers", "template": {"spec": {"template": two}}})
        spec = {"replicatedJobs": jobs}
    return json.loads(json.dumps({"metadata": {"name": "w", "labels": {FABRIC: "f"}}, "spec": spec}))


def list_codes(row, tree) -> list[list[str]]:
    return [[warning.code for warning in plan.warnings] for plan in working.plan_templates(row, tree, BY)]


@pytest.mark.parametrize("row", [LWS, PYTORCH, RAY, JOBSET], ids=lambda row: row.name)
def test_of_several_templates_only_those_with_accelerators_get_devices(row):
    tree = build_pair(row, cpu(), admitting.gpus(8))
    assert check_devices(row, tree)[-2:] == [False, True]
    assert not any(list_codes(row, tree))
    after = working.apply_patch(row, tree, BY)
    assert working.apply_patch(row, after, BY) == after


def test_a_workload_without_accelerators_gets_devices_only_in_named_containers():
    assert check_devices(LWS, build_pair(LWS, cpu(), cpu())) == [False, False]
    assert list_codes(LWS, build_pair(LWS, cpu(), cpu())) == [["NoAccelerator"], ["NoAccelerator"]]
    chosen = build_pair(PYTORCH, cpu(), admitting.gpus(8), annotations={"railwright.io/containers": "c"})
    assert check_devices(PYTORCH, chosen) == [True, True]
