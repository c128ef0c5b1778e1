"""Jobs of Kubeflow through the real controllers and the real API server: what their pods get of us."""

import json

import pytest
import pytest_asyncio
from plane import jobs

FABRIC, INJECTION = (f"railwright.io/{key}" for key in ("fabric", "injection"))
RAILS = ("nvidia.com/mlx5_0", "nvidia.com/mlx5_1")
POLICY = """
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
fabrics:
  ib:
    transport: infiniband
    rails:
    - {name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}
    - {name: rail1, resource: nvidia.com/mlx5_1, device: mlx5_1}
    security: {capabilities: [IPC_LOCK]}
"""
LABELS = {FABRIC: "ib"}


def container(pod: dict) -> dict:
    (only,) = pod["spec"]["containers"]
    return only


@pytest_asyncio.fixture(loop_scope="session")
async def injected(namespace, module_site):  # in this order: it is unregistered before its namespace goes
    await module_site.install(POLICY, namespace)
    yield namespace
    await module_site.unregister()


def on_the_object(manifest: dict) -> dict:
    """Return the one label a user writes: on the workload."""
    return manifest | {"metadata": manifest["metadata"] | {"labels": LABELS}}


def templates(value: object) -> list[dict]:
    """Return every pod template in a workload's spec, wherever it is."""
    if isinstance(value, list):
        return [template for child in value for template in templates(child)]
    if not isinstance(value, dict):
        return []
    if "containers" in value.get("spec", {}):
        return [value]
    return [template for child in value.values() for template in templates(child)]


def amounts(spec: dict) -> set[str]:
    return {spec["containers"][0].get("resources", {}).get("limits", {}).get(rail, "0") for rail in RAILS}


KINDS = {
    "MPIJob": ("mpi-operator", jobs.mpi_job("one"), jobs.of_kubeflow("one"), 3),
    "PyTorchJob": ("training-operator", jobs.pytorch_job("one"), jobs.of_kubeflow("one"), 2),
    "TFJob": ("training-operator", jobs.tf_job("one"), jobs.of_kubeflow("one"), 2),
    "XGBoostJob": ("training-operator", jobs.xgboost_job("one"), jobs.of_kubeflow("one"), 2),
    "PaddleJob": ("training-operator", jobs.paddle_job("one"), jobs.of_kubeflow("one"), 2),
    "JAXJob": ("training-operator", jobs.jax_job("one"), jobs.of_kubeflow("one"), 2),
    "JobSet": ("jobset", jobs.job_set("one"), "jobset.sigs.k8s.io/jobset-name=one", 3),
    "LeaderWorkerSet": ("lws", jobs.leader_worker_set("one"), "leaderworkerset.sigs.k8s.io/name=one", 3),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_one_label_on_a_workload_equips_its_templates_and_pods(plane, controllers, nodes, injected, kind):
    controller, manifest, selector, count = KINDS[kind]
    await nodes.make("gpu-0")
    await controllers.start(controller)
    created = await plane.api.create(on_the_object(manifest), namespace=injected)
    before = templates(created["spec"])
    assert before, "the workload has templates"
    for template in before:
        computes = "nvidia.com/gpu" in template["spec"]["containers"][0].get("resources", {}).get("limits", {})
        assert template["metadata"]["labels"][FABRIC] == "ib"
        assert amounts(template["spec"]) == ({"1"} if computes else {"0"})
        assert "NCCL_IB_HCA" not in json.dumps(template), "the environment is the pods' own"
    for pod in await jobs.pods(plane.api, injected, selector, count):
        computes = "nvidia.com/gpu" in container(pod)["resources"].get("limits", {})
        assert amounts(pod["spec"]) == ({"1"} if computes else {"0"})
        assert INJECTION in pod["metadata"]["annotations"]
    name = f"{manifest['apiVersion']}/{kind}"
    after = await plane.api.get(name, "one", injected)
    assert templates(after["spec"]) == before, "its controller's own updates change no template"
