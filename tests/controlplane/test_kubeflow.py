"""Jobs of Kubeflow through the real controllers and the real API server: what their pods get of us."""

import json

import pytest
import pytest_asyncio
from plane import jobs

FABRIC, INJECTION = (f"railwright.io/{key}" for key in ("fabric", "injection"))
RAILS = ("nvidia.com/mlx5_0", "nvidia.com/mlx5_1")
PINS = {"OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_btl_tcp_if_include", "PRTE_MCA_prte_if_include"}
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


def env(pod: dict) -> dict:
    return {variable["name"]: variable.get("value") for variable in container(pod).get("env", [])}


def rails_of(pod: dict) -> set[str]:
    return set(RAILS) & container(pod)["resources"].get("limits", {}).keys()


def record(pod: dict) -> dict:
    return json.loads(pod["metadata"]["annotations"][INJECTION])


@pytest_asyncio.fixture(loop_scope="session")
async def injected(namespace, site):  # in this order: the product is taken away before its namespace
    """Return the product at work on the test's namespace."""
    await site.policy(POLICY)
    await site.start_webhook()
    await site.register(namespace)
    return namespace


async def test_an_mpi_jobs_workers_get_the_rails_and_its_launcher_only_pins_unless_it_is_a_worker_too(
    plane, controllers, nodes, injected
):
    await nodes.make("gpu-0")
    await controllers.start("mpi-operator")
    await plane.api.create(jobs.mpi_job("mpi", labels=LABELS), namespace=injected)
    launcher, *workers = await jobs.pods(plane.api, injected, jobs.of_kubeflow("mpi"), 3)
    assert rails_of(launcher) == set()
    assert env(launcher).keys() >= PINS
    assert not [name for name in env(launcher) if name.startswith("NCCL_")]
    assert {"securityContext"}.isdisjoint(container(launcher))
    assert record(launcher)["role"] == "launcher"
    for worker in workers:
        assert rails_of(worker) == set(RAILS)
        assert container(worker)["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
        mounts = {volume_mount["mountPath"] for volume_mount in container(worker)["volumeMounts"]}
        assert "/etc/nccl.conf" in mounts, "ranks started by ssh do not inherit the container's environment"
        assert "NCCL_IB_HCA==mlx5_0,mlx5_1" in worker["metadata"]["annotations"]["railwright.io/nccl.conf"]
        assert PINS.isdisjoint(env(worker))

    job = jobs.mpi_job("both", workers=1, launcher_as_worker=True, launcher_gpus=1, labels=LABELS)
    await plane.api.create(job, namespace=injected)
    acting, worker = await jobs.pods(plane.api, injected, jobs.of_kubeflow("both"), 2)
    assert rails_of(acting) == rails_of(worker) == set(RAILS)
    assert env(acting).keys() >= PINS


async def test_a_pytorch_jobs_master_and_workers_get_the_rails_alike(plane, controllers, nodes, injected):
    await nodes.make("gpu-0")
    await controllers.start("training-operator")
    await plane.api.create(jobs.pytorch_job("torch", labels=LABELS), namespace=injected)
    for pod in await jobs.pods(plane.api, injected, jobs.of_kubeflow("torch"), 2):
        assert rails_of(pod) == set(RAILS)
        assert env(pod)["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
        assert record(pod)["role"] == "worker"
        assert all(
            "resources" not in init_container or not set(RAILS) & set(init_container["resources"].get("limits", {}))
            for init_container in pod["spec"].get("initContainers", [])
        )


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
async def test_one_label_on_a_workload_puts_the_devices_into_its_templates_and_the_rest_into_its_pods_once(
    plane, controllers, nodes, injected, kind
):
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
