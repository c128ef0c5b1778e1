"""Jobs of Kubeflow and Volcano through the real controllers and the real API server: what their pods get of us."""

import copy
import dataclasses
import json
import pathlib

import pytest
import pytest_asyncio
import yaml
from plane import jobs, portraits, waiting
from twins import meaning, ranks_of

EXAMPLES = pathlib.Path(__file__).parents[2] / "manifests" / "examples"
FABRIC, PLACEMENT, INJECTION = (f"railwright.io/{key}" for key in ("fabric", "placement", "injection"))
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


def of_job(name: str) -> str:
    return f"training.kubeflow.org/job-name={name}"


def container(pod: dict) -> dict:
    (only,) = pod["spec"]["containers"]
    return only


def env(pod: dict) -> dict:
    return {each["name"]: each.get("value") for each in container(pod).get("env", [])}


def rails_of(pod: dict) -> set[str]:
    return set(RAILS) & container(pod)["resources"].get("limits", {}).keys()


def record(pod: dict) -> dict:
    return json.loads(pod["metadata"]["annotations"][INJECTION])


@pytest_asyncio.fixture(loop_scope="session")
async def injected(namespace, site):  # in this order: the product is taken away before its namespace
    """The product at work on the test's namespace."""
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
    launcher, *workers = await jobs.pods(plane.api, injected, of_job("mpi"), 3)
    assert rails_of(launcher) == set()
    assert env(launcher).keys() >= PINS
    assert not [name for name in env(launcher) if name.startswith("NCCL_")]
    assert {"securityContext"}.isdisjoint(container(launcher))
    assert record(launcher)["role"] == "launcher"
    for worker in workers:
        assert rails_of(worker) == set(RAILS)
        assert container(worker)["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
        mounts = {each["mountPath"] for each in container(worker)["volumeMounts"]}
        assert "/etc/nccl.conf" in mounts, "ranks started by ssh do not inherit the container's environment"
        assert "NCCL_IB_HCA==mlx5_0,mlx5_1" in worker["metadata"]["annotations"]["railwright.io/nccl.conf"]
        assert PINS.isdisjoint(env(worker))

    job = jobs.mpi_job("both", workers=1, launcher_as_worker=True, launcher_gpus=1, labels=LABELS)
    await plane.api.create(job, namespace=injected)
    acting, worker = await jobs.pods(plane.api, injected, of_job("both"), 2)
    assert rails_of(acting) == rails_of(worker) == set(RAILS)
    assert env(acting).keys() >= PINS


async def test_a_pytorch_jobs_master_and_workers_get_the_rails_alike(plane, controllers, nodes, injected):
    await nodes.make("gpu-0")
    await controllers.start("training-operator")
    await plane.api.create(jobs.pytorch_job("torch", labels=LABELS), namespace=injected)
    for pod in await jobs.pods(plane.api, injected, of_job("torch"), 2):
        assert rails_of(pod) == set(RAILS)
        assert env(pod)["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
        assert record(pod)["role"] == "worker"
        assert all(
            "resources" not in each or not set(RAILS) & set(each["resources"].get("limits", {}))
            for each in pod["spec"].get("initContainers", [])
        )


@dataclasses.dataclass(frozen=True)
class Row:
    """A seed's row: who carries out its job, the pods to come, and what the nodes offer beside GPUs."""

    controller: str | None
    selector: str
    pods: int
    offered: dict[str, int]
    nodes: int = 1


CX6 = {f"spidernet.io/shared_cx6_rail{rail}": 10 for rail in range(4)}
ROWS = {
    "sriov-8-rail": Row("training-operator", of_job("llm"), 2, {"nvidia.com/ib_sriov_vf": 8}, nodes=2),
    "ack-erdma": Row("training-operator", of_job("erdma"), 2, {"aliyun/erdma": 2}),
    "pvrdma-mpi": Row("mpi-operator", of_job("tensorflow-benchmarks"), 5, {}),
    "vivo-roce": Row(None, "volcano.sh/job-name=llm", 2, CX6),
}


def written(site: str, source: str) -> dict:
    """The example's job; a label on the workload is moved into its templates, which is where its pods have it."""
    job = yaml.safe_load((EXAMPLES / site / f"{source}.yaml").read_text())
    job = json.loads(json.dumps(job))  # unties YAML's aliases
    label = job["metadata"].pop("labels", None)
    spec = job["spec"]
    replicas = spec.get("tasks") or (spec.get("pytorchReplicaSpecs") or spec["mpiReplicaSpecs"]).values()
    for each in replicas if label else ():
        each["template"].setdefault("metadata", {})["labels"] = label
    return job


def kind_of(job: dict) -> str:
    return f"{job['apiVersion']}/{job['kind']}"


async def carried_out(plane, job: dict, row: Row) -> dict[str, dict]:
    """The pods of the job, by name; the job and all of them are gone when this returns."""
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    await plane.api.create(copy.deepcopy(job))
    found = await jobs.pods(plane.api, namespace, row.selector, row.pods)
    await plane.api.delete(kind_of(job), name, namespace)

    async def nothing_left():
        pods = await plane.api.list("Pod", namespace, labels=row.selector)
        return not pods and await plane.api.get_or_none(kind_of(job), name, namespace) is None

    await waiting.wait(nothing_left, describe=f"{kind_of(job)} {name} and its pods to be gone", seconds=60)
    portrayed = [portraits.portrait(pod) for pod in found]
    for pod in portrayed:
        pod["metadata"].get("annotations", {}).pop(PLACEMENT, None)
    return {pod["metadata"]["name"]: pod for pod in portrayed}


def by_role(pods: dict[str, dict]) -> dict[str, dict]:
    """One pod a role, as `twins.ranks_of` reads them."""
    return {pod["metadata"]["labels"]["training.kubeflow.org/job-role"]: pod for pod in pods.values()}


@pytest_asyncio.fixture(loop_scope="session")
async def home(plane, nodes):
    """Makes the namespaces of an example with their networks; takes them away, pods first."""
    made = []

    async def make(*names: str) -> None:
        for name in names:
            await plane.make_namespace(name)
            made.append(name)

    yield make
    for name in made:
        await plane.remove_namespace(name)


@pytest.mark.parametrize("row", ROWS)
async def test_a_seeds_labelled_job_makes_the_pods_of_its_handwritten_twin(plane, controllers, nodes, home, site, row):
    this = ROWS[row]
    twin, ours = written(row, "handwritten"), written(row, "job")
    networks = EXAMPLES / row / "networks.yaml"
    nads = list(yaml.safe_load_all(networks.read_text())) if networks.exists() else []
    namespace = ours["metadata"]["namespace"]
    await home(*dict.fromkeys([namespace, *(each["metadata"]["namespace"] for each in nads)]))
    for each in nads:
        await plane.api.create(each)
    for index in range(this.nodes):
        await nodes.make(f"gpu-{index}", rails=this.offered)
    if this.controller:
        await controllers.start(this.controller)
    by_hand = await carried_out(plane, twin, this)

    await site.policy((EXAMPLES / row / "policy.yaml").read_text())
    await site.start_webhook()
    await site.register(namespace)
    admitted = await carried_out(plane, ours, this)

    assert admitted.keys() == by_hand.keys()
    if row == "pvrdma-mpi":  # on mpirun's command line by hand, in a file by us
        assert ranks_of(by_role(admitted)) == ranks_of(by_role(by_hand))
        return
    for name, pod in admitted.items():
        assert meaning(pod) == meaning(by_hand[name])
        assert INJECTION in pod["metadata"]["annotations"]
