"""Volcano tasks that only start the other tasks, found by their name if no plugin marks them."""

import json

import admitting
import pytest
import working
from admitting import PINS, cpu, env, fabric, gpus, record
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.injection import pod_changes
from railwright.fabric.workloads import membership

VOLCANO = working.kind("Job.batch.volcano.sh")
BY = fabric("    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n")
LAUNCHERS = ("mpimaster", "master", "launcher", "nccl-launcher", "driver", "spark-driver")
OTHERS = ("worker", "mpiworker", "masters", "psi", "master-0")


def job(*tasks: tuple[str, dict], **spec) -> dict:
    tree = working.workload(VOLCANO, working.template(), label="f", plugins={"ssh": [], "svc": []}, **spec)
    tree["spec"]["tasks"] = [{"name": name, "template": working.template(container)} for name, container in tasks]
    return json.loads(json.dumps(tree))  # two tasks may have been given one container


def pod_of(tree: dict, task: int) -> dict:
    """Return the pod that Volcano makes of a task, with the keys that the ssh plugin mounts."""
    made_pod = working.made(working.read(VOLCANO, tree).templates[task], tree)
    made_pod["metadata"]["namespace"] = "prod"
    made_pod["spec"].setdefault("volumes", []).append({"name": "w-ssh", "secret": {"secretName": "w-ssh"}})
    for container in made_pod["spec"]["containers"]:
        container.setdefault("volumeMounts", []).append({"name": "w-ssh", "mountPath": "/root/.ssh"})
    return made_pod


def admit_job(tree: dict, by=BY) -> tuple[dict, list[dict]]:
    """Return the job after its admission, and its pods after theirs."""
    stored = working.patched(VOLCANO, tree, by)
    return stored, [admitting.admitted(pod_of(stored, index), by) for index in range(len(stored["spec"]["tasks"]))]


def devices(container: dict) -> set[str]:
    return {name for name in container.get("resources", {}).get("limits", {}) if "mlx5" in name}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_beside_tasks_with_accelerators_gets_mpiruns_pins_and_nothing_else(name):
    stored, (launcher, worker) = admit_job(job((name, cpu("m")), ("ranks", gpus(8))))
    (written, _) = (task["template"]["spec"] for task in stored["spec"]["tasks"])
    assert written == {"containers": [cpu("m")]}
    assert env(launcher).keys() == PINS
    assert devices(launcher["spec"]["containers"][0]) == set()
    assert "securityContext" not in launcher["spec"]["containers"][0]
    assert "k8s.v1.cni.cncf.io/networks" not in launcher["metadata"]["annotations"]
    assert record(launcher)["role"] == "launcher"
    assert record(worker)["role"] == "worker"
    assert devices(worker["spec"]["containers"][0]) == {"nvidia.com/mlx5_0", "nvidia.com/mlx5_1"}


@pytest.mark.parametrize("name", OTHERS)
def test_a_task_of_another_name_gets_nothing_beside_tasks_with_accelerators(name):
    stored, (first, second) = admit_job(job((name, cpu()), ("ranks", gpus(8))))
    assert stored["spec"]["tasks"][0]["template"]["metadata"]["annotations"] == {"railwright.io/rails": "none"}
    assert "annotations" not in stored["spec"]["tasks"][1]["template"].get("metadata", {})
    assert (record(first)["role"], record(first)["rails"]) == ("excluded", [])
    assert devices(first["spec"]["containers"][0]) == set()
    assert is_rank(second)


def is_rank(pod: dict) -> bool:
    return record(pod)["rails"] == ["rail0", "rail1"] and devices(pod["spec"]["containers"][0]) != set()


@pytest.mark.parametrize("container", [cpu(), gpus(0)], ids=["none requested", "zero requested"])
def test_in_a_job_without_accelerators_the_master_is_a_rank(container):
    stored, pods = admit_job(job(("master", cpu()), ("worker", container)))
    containers = [task["template"]["spec"]["containers"][0] for task in stored["spec"]["tasks"]]
    assert [len(devices(container)) for container in containers] == [2, 2]
    assert all(is_rank(pod) for pod in pods)
    assert env(pods[0]).keys() >= PINS, "it may start the others too"


def test_a_master_that_requests_a_rails_device_itself_is_a_rank():
    own = cpu("m", resources={"limits": {"nvidia.com/mlx5_0": "1"}})
    stored, (master, _) = admit_job(job(("mpimaster", own), ("worker", gpus(8))))
    assert devices(stored["spec"]["tasks"][0]["template"]["spec"]["containers"][0]) == devices(
        master["spec"]["containers"][0]
    )
    assert is_rank(master)


def test_the_pods_author_makes_it_a_rank_by_naming_its_containers_and_the_operator_by_its_task():
    tree = job(("mpimaster", cpu("m")), ("worker", gpus(8)))
    tree["spec"]["tasks"][0]["template"]["metadata"] = {"annotations": {"railwright.io/containers": "m"}}
    _, (master, _) = admit_job(tree)
    assert is_rank(master)
    for roles in ("volcanoTasks: {mpimaster: always}", "launchers: always"):
        _, (master, _) = admit_job(job(("mpimaster", cpu("m")), ("worker", gpus(8))), fabric(top=f"roles: {{{roles}}}"))
        assert is_rank(master)
        assert env(master).keys() >= PINS
    never = fabric(top="roles: {launchers: never}")
    _, (master, _) = admit_job(job(("mpimaster", cpu("m")), ("worker", gpus(8))), never)
    assert not is_rank(master)
    assert not any(is_rank(admitted) for admitted in admit_job(job(("master", cpu())), never)[1])


def test_a_pod_whose_job_is_no_volcano_job_is_no_launcher_by_the_name_of_a_task():
    tree = admitting.pod(cpu(), labels={"volcano.sh/task-spec": "mpimaster"})
    assert record(admitting.admitted(tree, BY))["role"] == "worker"


@pytest.mark.parametrize("name", LAUNCHERS)
def test_launchers_of_admission_are_first_ranks_of_placement(name):
    def rank(task: str) -> membership.Rank:
        tree = admitting.pod(cpu(), labels={"volcano.sh/job-name": "j", "volcano.sh/task-spec": task})
        return membership.find_rank(admitting.view(tree))

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
        again = admitting.planned(pod, BY)
        assert isinstance(again, pod_changes.Injection)
        assert again.changes == ()
    assert working.patched(VOLCANO, stored, BY) == stored


# --- the ray plugin ------------------------------------------------------------------------------------------


def ray_job(head: dict, arguments: list[str] | None = None, name: str = "head") -> dict:
    tree = job((name, head), ("worker", gpus(8, "worker")))
    tree["spec"]["plugins"] = {"ray": arguments}
    return tree


def with_head_started(tree: dict, container: str) -> dict:
    """Return the pod of a Ray head as Volcano's ray plugin writes it."""
    for given_container in tree["spec"]["containers"]:
        if given_container["name"] == container:
            given_container["command"] = ["sh", "-c", "ray start --head --block --dashboard-host=0.0.0.0 --port=6379"]
    return tree


@pytest.mark.parametrize(
    ("arguments", "task", "container"),
    [(None, "head", "head"), (["--head=boss", "-headContainer", "ray"], "boss", "ray")],
)
def test_the_head_of_volcanos_ray_plugin_gets_pins_and_no_rails_unless_it_computes(arguments, task, container):
    stored = working.patched(VOLCANO, ray_job(cpu(container), arguments, task), BY)
    assert stored["spec"]["tasks"][0]["template"]["spec"]["containers"] == [cpu(container)]
    pod = with_head_started(pod_of(stored, 0), container)
    after = admitting.admitted(pod, BY)
    assert (record(after)["role"], record(after)["rails"]) == ("head", [])
    assert env(after).keys() == PINS
    assert devices(after["spec"]["containers"][0]) == set()
    computing = working.patched(VOLCANO, ray_job(gpus(8, container), arguments, task), BY)
    assert is_rank(admitting.admitted(with_head_started(pod_of(computing, 0), container), BY))


def test_a_task_called_head_without_the_ray_plugin_is_no_head():
    tree = ray_job(cpu("head"))
    tree["spec"]["plugins"] = {}
    stored = working.patched(VOLCANO, tree, BY)
    assert record(admitting.admitted(pod_of(stored, 0), BY))["role"] == "excluded"
