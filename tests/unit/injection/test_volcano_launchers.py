"""Volcano tasks that only start the other tasks, found by their name if no plugin marks them."""

import json

import admitting
import pytest
import working
from admitting import OF_OPEN_MPI, OPEN_MPI, cpu, fabric, gpus, read_env, read_record
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.injection import plan
from railwright.fabric.workloads import membership

VOLCANO = working.get_kind("Job.batch.volcano.sh")
BY = fabric("    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n" + OF_OPEN_MPI)
LAUNCHERS = ("mpimaster", "master", "launcher", "nccl-launcher", "driver", "spark-driver")
OTHERS = ("worker", "mpiworker", "masters", "psi", "master-0")


def job(*tasks: tuple[str, dict], **spec) -> dict:
    tree = working.build_workload(VOLCANO, working.build_template(), label="f", plugins={"ssh": [], "svc": []}, **spec)
    tree["spec"]["tasks"] = [{"name": name, "template": working.build_template(container)} for name, container in tasks]
    return json.loads(json.dumps(tree))  # two tasks may have been given one container


def pod_of(tree: dict, task: int) -> dict:
    """Return the pod that Volcano makes of a task, with the keys that the ssh plugin mounts."""
    made_pod = working.build_pod(working.read(VOLCANO, tree).templates[task], tree)
    made_pod["metadata"]["namespace"] = "prod"
    made_pod["spec"].setdefault("volumes", []).append({"name": "w-ssh", "secret": {"secretName": "w-ssh"}})
    for container in made_pod["spec"]["containers"]:
        container.setdefault("volumeMounts", []).append({"name": "w-ssh", "mountPath": "/root/.ssh"})
    return made_pod


def admit_job(tree: dict, by=BY) -> tuple[dict, list[dict]]:
    """Return the job after its admission, and its pods after theirs."""
    stored = working.apply_patch(VOLCANO, tree, by)
    return stored, [admitting.admit_pod(pod_of(stored, index), by) for index in range(len(stored["spec"]["tasks"]))]


def devices(container: dict) -> set[str]:
    return {name for name in container.get("resources", {}).get("limits", {}) if "mlx5" in name}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_beside_tasks_with_accelerators_gets_settings_of_open_mpi_and_nothing_else(name):
    stored, (launcher, worker) = admit_job(job((name, cpu("m")), ("ranks", gpus(8))))
    (written, _) = (task["template"]["spec"] for task in stored["spec"]["tasks"])
    assert written == {"containers": [cpu("m")]}
    assert read_env(launcher).keys() == OPEN_MPI
    assert devices(launcher["spec"]["containers"][0]) == set()
    assert "securityContext" not in launcher["spec"]["containers"][0]
    assert "k8s.v1.cni.cncf.io/networks" not in launcher["metadata"]["annotations"]
    assert read_record(launcher)["role"] == "launcher"
    assert read_record(worker)["role"] == "worker"
    assert devices(worker["spec"]["containers"][0]) == {"nvidia.com/mlx5_0", "nvidia.com/mlx5_1"}


@pytest.mark.parametrize("name", OTHERS)
def test_a_task_of_another_name_gets_nothing_beside_tasks_with_accelerators(name):
    stored, (first, second) = admit_job(job((name, cpu()), ("ranks", gpus(8))))
    assert not any("annotations" in task["template"].get("metadata", {}) for task in stored["spec"]["tasks"])
    assert (read_record(first)["role"], read_record(first)["rails"]) == ("excluded", [])
    assert devices(first["spec"]["containers"][0]) == set()
    assert is_rank(second)


def is_rank(pod: dict) -> bool:
    return read_record(pod)["rails"] == ["rail0", "rail1"] and devices(pod["spec"]["containers"][0]) != set()


def test_the_pods_author_makes_it_a_rank_by_naming_its_containers():
    tree = job(("mpimaster", cpu("m")), ("worker", gpus(8)))
    tree["spec"]["tasks"][0]["template"]["metadata"] = {"annotations": {"railwright.io/containers": "m"}}
    _, (master, _) = admit_job(tree)
    assert is_rank(master)
    assert read_env(master).keys() >= OPEN_MPI


@pytest.mark.parametrize("name", LAUNCHERS)
def test_placement_ranks_a_task_first_that_admission_treats_as_a_launcher(name):
    def rank(task: str) -> membership.Rank:
        tree = admitting.pod(cpu(), labels={"volcano.sh/job-name": "j", "volcano.sh/task-spec": task})
        return membership.find_rank(admitting.decode_pod(tree))

    assert rank(name) < rank("ranks")
    assert all(rank(other).role == rank("ranks").role for other in OTHERS)


tasks = st.lists(
    st.tuples(
        st.sampled_from([*LAUNCHERS, *OTHERS]),
        st.sampled_from([cpu(), gpus(1), gpus(0), cpu(resources={"limits": {"nvidia.com/mlx5_1": "1"}})]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda task: task[0],
)


@given(tasks)
def test_a_pod_gets_only_the_devices_of_its_template_also_on_a_second_call(case):
    stored, pods = admit_job(job(*case))
    for task, pod in zip(stored["spec"]["tasks"], pods, strict=True):
        assert devices(pod["spec"]["containers"][0]) == devices(task["template"]["spec"]["containers"][0])
        again = admitting.plan_pod(pod, BY)
        assert isinstance(again, plan.Injection)
        assert again.changes == ()
    assert working.apply_patch(VOLCANO, stored, BY) == stored
