"""Jobs through their real controllers: the pods that they create without railwright.

What railwright reads of them is recorded in `tests/data/pods.yaml` for the unit tests of roles and gangs;
RAILWRIGHT_RECORD=1 writes it again. Pods with one label are in test_seeds.py.
"""

import os
import pathlib

import pytest
import pytest_asyncio
import yaml
from plane import comparable_pods, conditions, jobs

RECORDED = pathlib.Path(__file__).parents[1] / "data" / "pods.yaml"
NAMESPACE = "recorded"  # always this one: names and hashes on the pods hold it
FIELDS = ("name", "env", "resources", "volumeMounts")  # of a container


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def home(plane, module_nodes):
    """Make the namespace, and enough nodes with GPUs for all pods of this file."""
    for index in range(4):
        await module_nodes.make(f"gpu-{index}")
    await plane.make_namespace(NAMESPACE)
    yield
    await plane.remove_namespace(NAMESPACE)


def read_gpus(pod: dict) -> str:
    return pod["spec"]["containers"][0].get("resources", {}).get("limits", {}).get("nvidia.com/gpu", "0")


def shorten(pod: dict) -> dict:
    """Return the recorded parts of a pod: metadata, volumes, and FIELDS of each container."""
    spec = {key: pod["spec"][key] for key in ("volumes", "initContainers", "containers") if key in pod["spec"]}
    for containers in (spec.get("initContainers", []), spec["containers"]):
        containers[:] = [{key: value for key, value in container.items() if key in FIELDS} for container in containers]
    return {"metadata": pod["metadata"], "spec": spec}


BOTH = jobs.mpi_job("mpi-both", workers=1, launcher_limits={"nvidia.com/gpu": 1}, runLauncherAsWorker=True)
CASES = {  # the job, its pods with their GPUs, and those that are recorded
    "MPIJob": (
        jobs.mpi_job("mpi"),
        {"mpi-launcher-xxxxx": "0", "mpi-worker-0": "1", "mpi-worker-1": "1"},
        {"mpi-operator-launcher": "mpi-launcher-xxxxx", "mpi-operator-worker": "mpi-worker-1"},
    ),
    "MPIJob whose launcher is a worker": (
        BOTH,
        {"mpi-both-launcher-xxxxx": "1", "mpi-both-worker-0": "1"},
        {"mpi-operator-launcher-as-worker": "mpi-both-launcher-xxxxx"},
    ),
    "PyTorchJob": (
        jobs.pytorch_job("torch", workers=2),
        {"torch-master-0": "1", "torch-worker-0": "1", "torch-worker-1": "1"},
        {"training-operator-pytorch-master": "torch-master-0", "training-operator-pytorch-worker": "torch-worker-1"},
    ),
    "TFJob": (
        jobs.tf_job("flow"),
        {"flow-chief-0": "1", "flow-worker-0": "1"},
        {"training-operator-tf-chief": "flow-chief-0"},
    ),
    "JobSet": (
        jobs.job_set("set"),
        {"set-driver-0-0-xxxxx": "0", "set-workers-0-0-xxxxx": "1", "set-workers-0-1-xxxxx": "1"},
        {"jobset-driver": "set-driver-0-0-xxxxx", "jobset-worker": "set-workers-0-1-xxxxx"},
    ),
    "LeaderWorkerSet": (
        jobs.leader_worker_set("group"),
        {"group-0": "1", "group-0-1": "1", "group-0-2": "1"},
        {"lws-leader": "group-0", "lws-worker": "group-0-2"},
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_controllers_create_pods_equal_to_the_recorded_ones(plane, home, case):
    job, expected, recorded = CASES[case]
    this, name = jobs.KINDS[job["kind"]], job["metadata"]["name"]
    await plane.controllers.start(this.controller)
    await plane.api.create(job, namespace=NAMESPACE)
    made = await conditions.wait_running(plane.api, NAMESPACE, this.selector(name), len(expected))
    pods = {comparable_pods.title(pod): pod for pod in made}
    assert {title: read_gpus(pod) for title, pod in pods.items()} == expected
    if job is BOTH:
        env = {variable["name"] for variable in pods["mpi-both-launcher-xxxxx"]["spec"]["containers"][0]["env"]}
        assert "NVIDIA_VISIBLE_DEVICES" not in env
    today = {entry: shorten(comparable_pods.strip_common_parts(pods[title])) for entry, title in recorded.items()}
    if os.environ.get("RAILWRIGHT_RECORD"):
        RECORDED.write_text(yaml.safe_dump(yaml.safe_load(RECORDED.read_text()) | today, width=120))
    before = yaml.safe_load(RECORDED.read_text())
    assert today == {entry: before[entry] for entry in recorded}
