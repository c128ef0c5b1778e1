"""Jobs through their real controllers: the pods that they create without railwright, and with one label.

The former are recorded in `tests/data/pods.yaml`, which the unit tests of roles and gangs read; RAILWRIGHT_RECORD=1
writes them again.
"""

import json
import os
import pathlib

import pytest
import pytest_asyncio
import yaml
from plane import comparable_pods, conditions, jobs, manifests
from plane.manifests import RAILS

FABRIC, INJECTION = (f"railwright.io/{key}" for key in ("fabric", "injection"))
POLICY = manifests.policy({"ib": manifests.fabric(2, security={"capabilities": ["IPC_LOCK"]})})
RECORDED = pathlib.Path(__file__).parents[1] / "data" / "pods.yaml"
NAMESPACE = "recorded"  # always this one: names and hashes on the pods hold it


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def home(plane, module_nodes):
    """Make the namespace, and enough nodes with GPUs for all pods of this file."""
    for index in range(4):
        await module_nodes.make(f"gpu-{index}")
    await plane.make_namespace(NAMESPACE)
    yield
    await plane.remove_namespace(NAMESPACE)


def gpus(pod: dict) -> str:
    return pod["spec"]["containers"][0].get("resources", {}).get("limits", {}).get("nvidia.com/gpu", "0")


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
async def test_the_controller_makes_the_recorded_pods(plane, home, case):
    job, expected, recorded = CASES[case]
    this, name = jobs.KINDS[job["kind"]], job["metadata"]["name"]
    await plane.controllers.start(this.controller)
    await plane.api.create(job, namespace=NAMESPACE)
    made = await conditions.wait_running(plane.api, NAMESPACE, this.selector(name), len(expected))
    pods = {comparable_pods.title(pod): pod for pod in made}
    assert {title: gpus(pod) for title, pod in pods.items()} == expected
    if job is BOTH:
        env = {variable["name"] for variable in pods["mpi-both-launcher-xxxxx"]["spec"]["containers"][0]["env"]}
        assert "NVIDIA_VISIBLE_DEVICES" not in env
    today = {entry: comparable_pods.strip_common_parts(pods[title]) for entry, title in recorded.items()}
    if os.environ.get("RAILWRIGHT_RECORD"):
        RECORDED.write_text(yaml.safe_dump(yaml.safe_load(RECORDED.read_text()) | today, width=120))
    before = yaml.safe_load(RECORDED.read_text())
    assert today == {entry: before[entry] for entry in recorded}


# --- with one label ---------------------------------------------------------------------------------------


def templates(value: object) -> list[dict]:
    """Return every pod template in a workload's spec."""
    if isinstance(value, list):
        return [template for child in value for template in templates(child)]
    if not isinstance(value, dict):
        return []
    if "containers" in value.get("spec", {}):
        return [value]
    return [template for child in value.values() for template in templates(child)]


def count_rails(holder: dict) -> set[str]:
    """Return the amounts of the rails in the only container of a pod or template."""
    (container,) = holder["spec"]["containers"]
    return {container.get("resources", {}).get("limits", {}).get(rail, "0") for rail in RAILS}


@pytest.mark.parametrize("kind", ["MPIJob", "PyTorchJob", "JobSet", "LeaderWorkerSet"])
async def test_one_label_on_a_workload_equips_its_templates_and_pods(
    plane, controllers, home, namespace, installed, kind
):
    this = jobs.KINDS[kind]
    await controllers.start(this.controller)
    manifest = this.build("one")
    manifest["metadata"]["labels"] = {FABRIC: "ib"}
    created = await plane.api.create(manifest, namespace=namespace)
    before = templates(created["spec"])
    assert before, "the workload has templates"
    for template in before:
        assert template["metadata"]["labels"][FABRIC] == "ib"
        assert count_rails(template) == {"0" if gpus(template) == "0" else "1"}
        assert "NCCL_IB_HCA" not in json.dumps(template), "the environment is the pods' own"
    for pod in await conditions.wait_running(plane.api, namespace, this.selector("one"), this.pods):
        assert count_rails(pod) == {"0" if gpus(pod) == "0" else "1"}
        assert INJECTION in pod["metadata"]["annotations"]
    after = await plane.api.get(f"{manifest['apiVersion']}/{kind}", "one", namespace)
    assert templates(after["spec"]) == before, "its controller's own updates change no template"
