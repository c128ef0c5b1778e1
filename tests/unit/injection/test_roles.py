"""Role, gang and rank of the pods of job controllers, and the changes that each pod gets.

`tests/data/pods.yaml` has pods of the real controllers. tests/integration/test_controllers.py compares them with the
pods that the controllers create today. Pods of controllers that the control plane cannot run are written after their
code."""

import dataclasses
import pathlib

import admitting
import pytest
import working
import yaml
from admitting import (
    LAUNCHER,
    OF_OPEN_MPI,
    OPEN_MPI,
    admit_pod,
    build_facts,
    build_variables,
    cpu,
    decode_pod,
    fabric,
    gpus,
    plan_pod,
    pod,
    read_env,
    read_limits,
    read_record,
)

from railwright.fabric.injection import accelerators, context
from railwright.fabric.workloads import membership
from railwright.fabric.workloads import roles as shown_roles

RECORDED = yaml.safe_load((pathlib.Path(__file__).parents[2] / "data" / "pods.yaml").read_text())
KUBEFLOW, JOBSET, RAY = "training.kubeflow.org", "jobset.sigs.k8s.io", "ray.io"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
DEVICES = ("nvidia.com/mlx5_0", "nvidia.com/mlx5_1")
FIRST, OTHER, NO_INDEX = 0, 1, membership._NO_INDEX  # Rank.role and Rank.index
GPU = "nvidia.com/gpu"


def build_pod(
    name: str, labels: dict, *, gpus: int = 0, variables: dict | None = None, owner: str = "", **spec
) -> dict:
    """Return a controller's pod, with the fields for roles and gangs."""
    resources = {"resources": {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}} if gpus else {}
    values = [{"name": key, "value": value} for key, value in (variables or {}).items()]
    metadata: dict = {"name": name, "namespace": "prod", "labels": dict(labels)}
    if owner:
        metadata["ownerReferences"] = [{"kind": owner, "name": "o", "uid": "u", "controller": True}]
    containers = [{"name": "c", "image": "i", "env": values, **resources}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


@dataclasses.dataclass(frozen=True)
class Expected:
    word: str
    rails: bool
    gang: str
    first: int  # FIRST or OTHER
    index: int


def name_kubeflow(controller: str, **labels: str) -> dict:
    return {
        f"{KUBEFLOW}/{key}": value for key, value in {"operator-name": controller, "job-name": "j", **labels}.items()
    }


def v1(role: str, *, labels: dict, **more) -> dict:  # training-operator's MPIJob v1
    return build_pod(f"j-{role}", name_kubeflow("mpijob-controller", **{"replica-type": role}, **labels), **more)


def job_set(name: str, replicated: str, *, index: int = 0, labels: dict | None = None, **more) -> dict:
    base = {f"{JOBSET}/jobset-name": "js", f"{JOBSET}/replicatedjob-name": replicated, f"{JOBSET}/job-index": "0"}
    base |= {"batch.kubernetes.io/job-completion-index": str(index), "batch.kubernetes.io/job-name": f"js-{replicated}"}
    return build_pod(name, base | (labels or {}), **more)


def ray(kind: str, **more) -> dict:
    labels = {f"{RAY}/is-ray-node": "yes", f"{RAY}/cluster": "c", f"{RAY}/node-type": kind}
    return build_pod(f"c-{kind}-0", labels, owner="RayCluster", **more)


LAUNCHER_INIT = [{"name": "kubectl-delivery", "image": "k"}]
OF_CONTROLLERS = {
    "mpi-operator-launcher": Expected("launcher", False, "recorded/kubeflow-job/mpi/mpi-operator", FIRST, NO_INDEX),
    "mpi-operator-worker": Expected("worker", True, "recorded/kubeflow-job/mpi/mpi-operator", OTHER, 1),
    "mpi-operator-launcher-as-worker": Expected(
        "launcher", True, "recorded/kubeflow-job/mpi-both/mpi-operator", FIRST, NO_INDEX
    ),
    "training-operator-pytorch-master": Expected(
        "worker", True, "recorded/kubeflow-job/torch/pytorchjob-controller", FIRST, 0
    ),
    "training-operator-pytorch-worker": Expected(
        "worker", True, "recorded/kubeflow-job/torch/pytorchjob-controller", OTHER, 1
    ),
    "training-operator-tf-chief": Expected("worker", True, "recorded/kubeflow-job/flow/tfjob-controller", FIRST, 0),
    "jobset-driver": Expected("excluded", False, "recorded/jobset/set/0", FIRST, 0),
    "jobset-worker": Expected("worker", True, "recorded/jobset/set/0", OTHER, 1),
    "lws-leader": Expected("worker", True, "recorded/leader-worker-set/group/0", FIRST, 0),
    "lws-worker": Expected("worker", True, "recorded/leader-worker-set/group/0", OTHER, 2),
}
CASES = {name: (RECORDED[name], expected) for name, expected in OF_CONTROLLERS.items()} | {
    # --- as their code makes them -------------------------------------------------------------------------
    "mpi-operator later: runLauncherAsWorker without GPUs": (
        build_pod("j-launcher-ab1cd", name_kubeflow("mpi-operator", **{"job-role": "launcher", "replica-index": "0"})),
        Expected("launcher", False, "prod/kubeflow-job/j/mpi-operator", FIRST, 0),
    ),
    "training-operator MPIJob v1: launcher, whose job-role is master": (
        v1("launcher", labels={"job-role": "master"}, initContainers=LAUNCHER_INIT),
        Expected("launcher", False, "prod/kubeflow-job/j/mpijob-controller", FIRST, NO_INDEX),
    ),
    "training-operator MPIJob v1: launcher with GPUs": (
        v1("launcher", labels={"job-role": "master"}, gpus=1, initContainers=LAUNCHER_INIT),
        Expected("launcher", True, "prod/kubeflow-job/j/mpijob-controller", FIRST, NO_INDEX),
    ),
    "training-operator MPIJob v1: worker": (
        v1("worker", labels={"replica-index": "3"}, gpus=1),
        Expected("worker", True, "prod/kubeflow-job/j/mpijob-controller", OTHER, 3),
    ),
    "mpi-operator v1: launcher": (
        build_pod("j-launcher", {"group-name": "kubeflow.org", "mpi-job-name": "j", "mpi-job-role": "launcher"}),
        Expected("launcher", False, "prod/mpi-job/j", FIRST, NO_INDEX),
    ),
    "mpi-operator v1: worker": (
        build_pod("j-worker-2", {"group-name": "kubeflow.org", "mpi-job-name": "j", "mpi-job-role": "worker"}, gpus=1),
        Expected("worker", True, "prod/mpi-job/j", OTHER, 2),
    ),
    "Trainer v2: node without GPUs": (
        job_set("js-node-0-1-abcde", "node", index=1),
        Expected("excluded", False, "prod/jobset/js/0", OTHER, 1),
    ),
    "Trainer v2: node under another name": (
        job_set("js-train-0-0-abcde", "train", labels={STEP: "trainer"}, gpus=8),
        Expected("worker", True, "prod/jobset/js/0", OTHER, 0),
    ),
    "Trainer v2: launcher without GPUs": (
        job_set("js-launcher-0-0-abcde", "launcher"),
        Expected("launcher", False, "prod/jobset/js/0", FIRST, 0),
    ),
    "Trainer v2: runLauncherAsNode": (
        job_set("js-launcher-0-0-abcde", "launcher", labels={STEP: "trainer"}, gpus=8),
        Expected("launcher", True, "prod/jobset/js/0", FIRST, 0),
    ),
    "Trainer v2: initializer": (
        job_set("js-model-initializer-0-0-abcde", "model-initializer"),
        Expected("excluded", False, "prod/jobset/js/0", OTHER, 0),
    ),
    "KubeRay: head without GPUs": (ray("head"), Expected("head", False, "prod/RayCluster/o/u", FIRST, 0)),
    "KubeRay: head with GPUs": (ray("head", gpus=8), Expected("head", True, "prod/RayCluster/o/u", FIRST, 0)),
    "KubeRay: worker": (ray("worker", gpus=8), Expected("worker", True, "prod/RayCluster/o/u", OTHER, 0)),
    "KubeRay: redis-cleanup": (ray("redis-cleanup"), Expected("excluded", False, "prod/RayCluster/o/u", OTHER, 0)),
    "KubeRay: submitter, a Job's pod without node-type": (
        build_pod(
            "job-x9z8y",
            {"batch.kubernetes.io/job-name": "job"},
            variables={"RAY_DASHBOARD_ADDRESS": "h:8265", "RAY_JOB_SUBMISSION_ID": "job-1"},
        ),
        Expected("excluded", False, "prod/job/job", OTHER, NO_INDEX),
    ),
    **{
        f"TFJob: {replica} without GPUs": (
            build_pod(
                f"j-{replica}-0", name_kubeflow("tfjob-controller", **{"replica-type": replica, "replica-index": "0"})
            ),
            Expected("excluded", False, "prod/kubeflow-job/j/tfjob-controller", OTHER, 0),
        )
        for replica in ("ps", "evaluator")
    },
    "Volcano's MPI plugin: master without GPUs": (
        build_pod(
            "j-mpimaster-0",
            {"volcano.sh/job-name": "j", "volcano.sh/task-spec": "mpimaster", "volcano.sh/task-index": "0"},
            variables={"MPI_HOST": "j-mpiworker-0.j"},
        ),
        Expected("launcher", False, "prod/volcano-job/j", FIRST, 0),
    ),
    "Volcano: worker": (
        build_pod(
            "j-worker-1",
            {"volcano.sh/job-name": "j", "volcano.sh/task-spec": "worker", "volcano.sh/task-index": "1"},
            gpus=8,
        ),
        Expected("worker", True, "prod/volcano-job/j", OTHER, 1),
    ),
    "Indexed Job": (
        build_pod(
            "j-3-abcde", {"batch.kubernetes.io/job-name": "j", "batch.kubernetes.io/job-completion-index": "3"}, gpus=1
        ),
        Expected("worker", True, "prod/job/j", OTHER, 3),
    ),
}


def add_labels(tree: dict, **more: str) -> dict:
    """Return the pod with the labels that it has if its template opted in."""
    metadata = tree["metadata"] | {"labels": tree["metadata"].get("labels", {}) | {"railwright.io/fabric": "f"} | more}
    return tree | {"metadata": metadata}


def role(tree: dict) -> context.Role:
    pod = decode_pod(tree)
    return context.find_role(pod, is_accelerated=bool(accelerators.find_accelerated_containers(pod, (GPU,))))


def read(tree: dict) -> Expected:
    own_role, pod = role(tree), decode_pod(tree)
    rank, gang = membership.find_rank(pod), membership.find_gang(pod)
    assert own_role.is_launcher == (own_role.name == "launcher")
    return Expected(own_role.name, own_role.has_rails, gang, rank.role, rank.index)


def test_role_gang_and_rank_are_read_from_recorded_pods_of_controllers():
    assert {case: read(tree) for case, (tree, _) in CASES.items()} == {
        case: expected for case, (_, expected) in CASES.items()
    }


FULL = fabric(
    "    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n"
    "    env: {A: b, OMPI_MCA_btl_tcp_if_include: eth0}\n"
    "    resources: {a.b/flag: 1}\n    resolve: always\n"
)


# one pod of each role, with rails and without
OUTCOMES = {(expected.word, expected.rails): case for case, (_, expected) in CASES.items()}


@pytest.mark.parametrize("case", OUTCOMES.values())
def test_the_role_of_a_pod_decides_between_rails_and_open_mpi_settings(case):
    tree, expected = CASES[case]
    at = build_facts(tree["metadata"]["namespace"])
    after = admit_pod(add_labels(tree), FULL, at)
    new = read_env(after).keys() - read_env(tree).keys()
    assert read_record(after)["role"] == expected.word
    assert bool(read_record(after)["rails"]) == expected.rails
    assert all((device in read_limits(after)) == expected.rails for device in DEVICES)
    assert ("NCCL_IB_HCA" in new) == expected.rails
    assert new & OPEN_MPI == (OPEN_MPI if expected.word == "launcher" or expected.rails else set())
    assert ("k8s.v1.cni.cncf.io/networks" in after["metadata"].get("annotations", {})) == expected.rails
    if not expected.rails:
        (container,) = tree["spec"]["containers"]
        container_after = after["spec"]["containers"][0] | {"env": container["env"]}
        assert after["spec"] | {"containers": [container_after]} == tree["spec"]
        assert new <= OPEN_MPI
        assert "rails" in read_record(after)["skipped"]


def test_only_pods_of_mpi_operator_are_recognized_as_started_by_ssh():
    assert {name for name in CASES if shown_roles.is_started_by_ssh(decode_pod(CASES[name][0]))} == {
        "mpi-operator-launcher",
        "mpi-operator-worker",
        "mpi-operator-launcher-as-worker",
    }


LIST = "--mca btl_tcp_if_exclude lo,docker0"


@pytest.mark.parametrize(
    "own",
    [
        {"command": ["mpirun", *LIST.split(), "train"]},
        {"command": ["bash", "-c"], "args": [f"mpirun {LIST} train"]},
        {"args": ["horovodrun", f"--mpi-args={LIST}"]},
        {"args": ["--prtemca", "prte_if_exclude", "lo"]},
        {"command": ["sh", "-c", "export OMPI_MCA_oob_tcp_if_exclude=lo; mpirun train"]},
        {"env": build_variables(OMPI_MCA_oob_tcp_if_exclude="lo")},
        {"env": build_variables(PRTE_MCA_prte_if_exclude="lo")},
        {"env": build_variables(OMPI_MCA_btl_tcp_if_include="eth1")},
    ],
)
@pytest.mark.parametrize("gpus", [0, 8])
def test_a_launcher_with_an_own_interface_list_gets_no_open_mpi_settings(own, gpus):
    container = (admitting.gpus(8) if gpus else cpu()) | own
    tree, policy = pod(container, labels=admitting.LAUNCHER), fabric(OF_OPEN_MPI)
    after = admit_pod(tree, policy)
    new = read_env(after).keys() - {entry["name"] for entry in own.get("env", ())}
    assert not new & OPEN_MPI
    assert read_record(after)["skipped"]["env.OMPI_MCA_btl_tcp_if_include"]["code"] == "OpenMpiLists"


def test_no_variable_of_open_mpi_is_derived():
    for labels in (admitting.LAUNCHER, {}):
        container = admitting.gpus(8, env=build_variables(OMPI_MCA_pml="ucx"))
        assert {name for name in read_env(admit_pod(pod(container, labels=labels), fabric())) if "_MCA_" in name} == {
            "OMPI_MCA_pml"
        }


# --- pods without accelerators in a job whose label counts for all of them -----------------------------------

TENSORFLOW = {"training.kubeflow.org/operator-name": "tfjob-controller", "training.kubeflow.org/job-name": "j"}


@pytest.mark.parametrize(
    "labels",
    [
        TENSORFLOW | {"training.kubeflow.org/replica-type": "ps"},
        {"ray.io/node-type": "worker", "ray.io/group": "cpu"},
        {"volcano.sh/job-name": "j", "volcano.sh/task-spec": "tensorboard"},
        {},
    ],
)
def test_a_pod_gets_rails_with_an_accelerator_or_by_annotation_only(labels):
    named = {"railwright.io/containers": "c"}
    for container, annotations, role in (
        (cpu(), {}, "excluded"),
        (cpu(), {"railwright.io/rails": "2"}, "worker"),
        (cpu(resources={"limits": {"nvidia.com/mlx5_0": "1"}}), {}, "excluded"),
        (admitting.gpus(8), {}, "worker"),
        (cpu(), named, "worker"),
    ):
        after = admit_pod(pod(container, labels=labels, annotations=annotations), fabric())
        assert read_record(after)["role"] == role
        assert ("nvidia.com/mlx5_1" in read_limits(after)) == (role == "worker")


def test_a_fabric_for_cpus_gives_rails_to_every_pod_but_launchers_and_heads():
    policy = fabric("    accelerators: []\n")
    for labels, rails in (({}, True), (admitting.LAUNCHER, False), ({"ray.io/node-type": "head"}, False)):
        after = admit_pod(pod(cpu(), labels=labels), policy)
        assert bool(read_record(after)["rails"]) is rails
        assert ("nvidia.com/mlx5_1" in read_limits(after)) is rails


def test_a_pod_without_accelerators_gets_a_warning_unless_it_is_a_launcher_or_head():
    (warning,) = plan_pod(pod(cpu()), fabric()).warnings
    assert warning.code == "NoAccelerator"
    assert warning.code == read_record(admit_pod(pod(cpu()), fabric()))["skipped"]["rails"]["code"]
    unlisted = pod(cpu("log-shipper"), admitting.cpu("train", resources={"limits": {"amd.com/gpu": "8"}}))
    unlisted["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "uid": "u", "controller": True}]
    (warning,) = plan_pod(unlisted, fabric()).warnings
    assert "container train requests amd.com/gpu, which `accelerators` of the policy does not have" in warning.message
    for tree in (pod(cpu(), labels=admitting.LAUNCHER), pod(cpu(), labels={"ray.io/node-type": "head"})):
        assert plan_pod(tree, fabric()).warnings == ()


# --- Volcano tasks that only start the other tasks, found by their name if no plugin marks them -----------------

VOLCANO = working.get_kind("Job.batch.volcano.sh")
FOR_MPI = fabric("    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n" + OF_OPEN_MPI)
LAUNCHERS = ("mpimaster", "master", "launcher", "nccl-launcher", "driver", "spark-driver")
OTHERS = ("worker", "mpiworker", "masters", "psi", "master-0")


def build_task_pod(task: str) -> dict:
    return admitting.pod(cpu(), labels={"volcano.sh/job-name": "j", "volcano.sh/task-spec": task})


@pytest.mark.parametrize("name", [*LAUNCHERS, *OTHERS])
def test_a_volcano_task_without_gpus_gets_open_mpi_settings_only_if_it_is_named_like_a_launcher(name):
    job = working.build_workload(VOLCANO, working.build_template(), label="f")
    tasks = ((name, cpu()), ("ranks", gpus(8)))
    job["spec"]["tasks"] = [{"name": task, "template": working.build_template(own)} for task, own in tasks]
    first, second = working.plan_templates(VOLCANO, job, FOR_MPI)
    role = "launcher" if name in LAUNCHERS else "excluded"
    assert (first.injection.role, second.injection.role) == (role, "worker")
    stored = working.apply_patch(VOLCANO, job, FOR_MPI)
    assert stored["spec"]["tasks"][0]["template"]["spec"] == {"containers": [cpu()]}
    after = admitting.admit_pod(build_task_pod(name), FOR_MPI)
    assert read_env(after).keys() == (OPEN_MPI if name in LAUNCHERS else set())
    assert after["spec"].keys() == {"containers"}
    assert after["spec"]["containers"][0].keys() - {"env"} == cpu().keys()


@pytest.mark.parametrize("name", LAUNCHERS)
def test_the_pod_that_admission_recognizes_as_launcher_has_the_first_rank_in_placement(name):
    first, ranks, *others = [
        membership.find_rank(admitting.decode_pod(build_task_pod(task))) for task in (name, "ranks", *OTHERS)
    ]
    assert first < ranks
    assert all(other.role == ranks.role for other in others)


# --- containers that get the fabric or mpirun's settings beside sidecars of other webhooks ----------------------

DEFAULT = "kubectl.kubernetes.io/default-container"


def test_a_launcher_container_after_a_sidecar_gets_open_mpi_settings():
    after = admit_pod(pod(cpu("acme-agent"), cpu("launcher"), labels=LAUNCHER), FOR_MPI)
    _, launcher = after["spec"]["containers"]
    assert {entry["name"] for entry in launcher["env"]} == OPEN_MPI


@pytest.mark.parametrize(
    ("annotations", "chosen"), [({}, "proxy"), ({DEFAULT: "train"}, "train"), ({DEFAULT: "x"}, "proxy")]
)
def test_without_accelerators_the_default_container_of_kubectl_gets_the_rails(annotations, chosen):
    tree = pod(cpu("proxy"), cpu("train"), annotations={"railwright.io/rails": "1", **annotations})
    after = admit_pod(tree, FOR_MPI)
    assert read_record(after)["containers"] == [chosen]
    after["spec"]["containers"].reverse()
    assert plan_pod(after, FOR_MPI).changes == ()
