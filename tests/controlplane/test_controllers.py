"""The pods that the real controllers of jobs make: what `tests/data/pods` holds is what they make today.

RAILWRIGHT_RECORD=1 writes the files again; the unit tests of roles and gangs read them.
"""

import json
import os
import pathlib

import pytest_asyncio
from plane import comparable_pods, jobs
from plane import nodes as plane_nodes

DATA = pathlib.Path(__file__).parents[1] / "data" / "pods"
NAMESPACE = "recorded"  # always this one: names and hashes on the pods hold it


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def recorded(plane):
    """`await recorded(controller, job, selector, count)`: the pods a controller makes of a job, by name."""
    nodes = plane_nodes.Nodes(plane.api)
    for index in range(2):
        await nodes.make(f"gpu-{index}")
    await plane.make_namespace(NAMESPACE)

    async def record_pods(controller: str, job: dict, labels: str, count: int) -> dict[str, dict]:
        await plane.controllers.start(controller)
        await plane.api.create(job, namespace=NAMESPACE)
        return {comparable_pods.title(pod): pod for pod in await jobs.pods(plane.api, NAMESPACE, labels, count)}

    yield record_pods
    await plane.remove_namespace(NAMESPACE)
    await nodes.remove()


def assert_recorded(name: str, pod: dict) -> None:
    path = DATA / f"{name}.json"
    if os.environ.get("RAILWRIGHT_RECORD"):
        DATA.mkdir(exist_ok=True)
        path.write_text(json.dumps(comparable_pods.strip_changing_parts(pod), indent=1, sort_keys=True) + "\n")
    assert comparable_pods.strip_changing_parts(pod) == json.loads(path.read_text())


def gpus(pod: dict) -> str:
    return pod["spec"]["containers"][0]["resources"].get("limits", {}).get("nvidia.com/gpu", "0")


async def test_mpi_operator_makes_a_launcher_and_workers(recorded):
    pods = await recorded("mpi-operator", jobs.mpi_job("mpi"), "training.kubeflow.org/job-name=mpi", 3)
    assert {name: gpus(pod) for name, pod in pods.items()} == {
        "mpi-launcher-xxxxx": "0",
        "mpi-worker-0": "1",
        "mpi-worker-1": "1",
    }
    assert_recorded("mpi-operator-launcher", pods["mpi-launcher-xxxxx"])
    assert_recorded("mpi-operator-worker", pods["mpi-worker-1"])


async def test_mpi_operator_makes_a_launcher_that_is_a_worker(recorded):
    job = jobs.mpi_job("mpi-both", workers=1, launcher_as_worker=True, launcher_gpus=1)
    pods = await recorded("mpi-operator", job, "training.kubeflow.org/job-name=mpi-both", 2)
    assert {name: gpus(pod) for name, pod in pods.items()} == {"mpi-both-launcher-xxxxx": "1", "mpi-both-worker-0": "1"}
    env = {variable["name"] for variable in pods["mpi-both-launcher-xxxxx"]["spec"]["containers"][0]["env"]}
    assert "NVIDIA_VISIBLE_DEVICES" not in env
    assert_recorded("mpi-operator-launcher-as-worker", pods["mpi-both-launcher-xxxxx"])


async def test_training_operator_makes_pods_of_a_pytorch_job(recorded):
    job = jobs.pytorch_job("torch", workers=2)
    pods = await recorded("training-operator", job, "training.kubeflow.org/job-name=torch", 3)
    assert list(pods) == ["torch-master-0", "torch-worker-0", "torch-worker-1"]
    assert_recorded("training-operator-pytorch-master", pods["torch-master-0"])
    assert_recorded("training-operator-pytorch-worker", pods["torch-worker-1"])


async def test_training_operator_makes_pods_of_a_tensorflow_job(recorded):
    pods = await recorded("training-operator", jobs.tf_job("flow"), "training.kubeflow.org/job-name=flow", 2)
    assert list(pods) == ["flow-chief-0", "flow-worker-0"]
    assert_recorded("training-operator-tf-chief", pods["flow-chief-0"])


async def test_jobset_labels_its_driver_and_workers(recorded):
    pods = await recorded("jobset", jobs.job_set("set"), "jobset.sigs.k8s.io/jobset-name=set", 3)
    assert list(pods) == ["set-driver-0-0-xxxxx", "set-workers-0-0-xxxxx", "set-workers-0-1-xxxxx"]
    assert_recorded("jobset-driver", pods["set-driver-0-0-xxxxx"])
    assert_recorded("jobset-worker", pods["set-workers-0-1-xxxxx"])


async def test_leader_worker_set_makes_a_leader_and_workers(recorded):
    job = jobs.leader_worker_set("group")
    pods = await recorded("lws", job, "leaderworkerset.sigs.k8s.io/name=group", 3)
    assert list(pods) == ["group-0", "group-0-1", "group-0-2"]
    assert_recorded("lws-leader", pods["group-0"])
    assert_recorded("lws-worker", pods["group-0-2"])
