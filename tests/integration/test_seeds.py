"""Jobs of real deployments on the real API server and controllers: one label gives the pods of the hand-written job."""

import copy
import dataclasses
import json
import re
import uuid

import pytest
import pytest_asyncio
import yaml
from admitting import EXAMPLES, LANS
from meanings import read_meaning, read_ranks
from plane import comparable_pods, conditions, jobs, manifests

INJECTION = "railwright.io/injection"
RUN = re.compile(r"-run-[0-9a-f]{8}\b")  # the end of the name of a Volcano Job
HASHES = ("controller-revision-hash", "leaderworkerset.sigs.k8s.io/template-revision-hash")  # of the templates


@dataclasses.dataclass(frozen=True)
class Row:
    """An example: the controller of its job, the expected pods, and the nodes' resources besides GPUs.

    `selector` selects the pods, with the name of a Volcano Job in place of {}.
    """

    controller: str | None
    selector: str
    pods: int
    offered: dict[str, int]
    nodes: int = 1


CX6 = {f"spidernet.io/shared_cx6_rail{rail}": 10 for rail in range(4)}
RDMA = {f"nvidia.com/mlx5_{rail}": 1 for rail in range(4)}
ROWS = {
    "360-roce": Row(None, "volcano.sh/job-name={}", 1, RDMA),
    "360-infiniband": Row(None, "volcano.sh/job-name={}", 1, RDMA),
    "sriov-8-rail": Row(
        "training-operator", jobs.select_kubeflow_pods("llm"), 2, {"nvidia.com/ib_sriov_vf": 8}, nodes=2
    ),
    "ack-erdma": Row("training-operator", jobs.select_kubeflow_pods("erdma"), 2, {"aliyun/erdma": 2}),
    "pvrdma-mpi": Row("mpi-operator", jobs.select_kubeflow_pods("tensorflow-benchmarks"), 5, {}),
    "vivo-roce": Row(None, "volcano.sh/job-name={}", 2, CX6),
    "llm-d": Row("lws", "leaderworkerset.sigs.k8s.io/name", 4, {"rdma/ib": 1}, nodes=4),
}


def read_jobs(site: str, source: str) -> list[dict]:
    """Return the example's shipped jobs: one, or one for prefill and one for decode.

    Each Volcano Job has a new name, because Volcano may create no pods for a name used before (docs/schedulers.md).
    """
    jobs = list(yaml.safe_load_all((EXAMPLES / site / f"{source}.yaml").read_text()))
    documents: list[dict] = json.loads(json.dumps(jobs))  # unties YAML's aliases
    for job in documents:
        if read_kind(job) == manifests.VOLCANO_JOB:
            job["metadata"]["name"] += f"-run-{uuid.uuid4().hex[:8]}"
    return documents


def read_networks(site: str) -> list[dict]:
    """Return the example's NetworkAttachmentDefinitions; for 360 they are those of the original deployment."""
    path = EXAMPLES / site / "networks.yaml"
    if path.exists():
        return list(yaml.safe_load_all(path.read_text()))
    users = LANS if site == "360-roce" else ()
    return [manifests.network(name, namespace=namespace) for namespace, name in users]


def read_kind(job: dict) -> str:
    return f"{job['apiVersion']}/{job['kind']}"


async def run_jobs(plane, jobs: list[dict], row: Row) -> dict[str, dict]:
    """Run the jobs, return their pods by name, and delete the jobs and pods."""
    namespace = jobs[0]["metadata"]["namespace"]
    for job in jobs:
        await plane.api.create(copy.deepcopy(job))
    selector = row.selector.format(jobs[0]["metadata"]["name"])
    listed = await conditions.wait_running(plane.api, namespace, selector, row.pods)
    for job in jobs:
        await plane.api.delete(read_kind(job), job["metadata"]["name"], namespace)
    for job in jobs:
        await conditions.wait_gone(plane.api, read_kind(job), job["metadata"]["name"], namespace)
    for pod in listed:
        await conditions.wait_gone(plane.api, "Pod", pod["metadata"]["name"], namespace)
    listed = json.loads(RUN.sub("", json.dumps(listed)))
    portrayed = [comparable_pods.strip_common_parts(pod) for pod in listed]
    for pod in portrayed:
        for label in HASHES:
            pod["metadata"].get("labels", {}).pop(label, None)
    return {pod["metadata"]["name"]: pod for pod in portrayed}


def group_by_role(pods: dict[str, dict]) -> dict[str, dict]:
    """Return one pod of each role, in the form that `meanings.read_ranks` reads."""
    return {pod["metadata"]["labels"]["training.kubeflow.org/job-role"]: pod for pod in pods.values()}


@pytest_asyncio.fixture(loop_scope="session")
async def home(plane, nodes):
    """Return a function that makes the namespaces of an example with their networks; they are deleted at the end."""
    made = []

    async def make(*names: str) -> None:
        for name in names:
            await plane.make_namespace(name)
            made.append(name)

    yield make
    for name in made:  # the next row may bring a namespace of the same name
        await plane.remove_namespace(name, whole=True)


@pytest_asyncio.fixture(loop_scope="session")
async def installed(home, module_site):  # in this order: it is unregistered before the namespaces go
    """Yield `await installed(row, namespace)`: register the webhook with the policy of an example."""

    async def install(row: str, namespace: str) -> None:
        await module_site.install((EXAMPLES / row / "policy.yaml").read_text(), namespace)
        await module_site.guard(namespace)  # no pod, rank or not, looks as if it had slipped through

    yield install
    await module_site.unregister()


@pytest.mark.parametrize("row", ROWS)
async def test_a_labelled_job_gets_the_same_pods_as_the_handwritten_job(
    plane, controllers, nodes, home, installed, row
):
    this = ROWS[row]
    twins, ours = read_jobs(row, "handwritten"), read_jobs(row, "job")
    nads = read_networks(row)
    namespace = ours[0]["metadata"]["namespace"]
    await home(*dict.fromkeys([namespace, *(nad["metadata"]["namespace"] for nad in nads)]))
    for nad in nads:
        await plane.api.create(nad)
    for index in range(this.nodes):
        await nodes.make(f"gpu-{index}", rails=this.offered)
    if this.controller:
        await controllers.start(this.controller)
    by_hand = await run_jobs(plane, twins, this)

    await installed(row, namespace)
    admitted = await run_jobs(plane, ours, this)

    assert admitted.keys() == by_hand.keys()
    if row == "pvrdma-mpi":  # on mpirun's command line by hand, in a file by us
        assert read_ranks(group_by_role(admitted)) == read_ranks(group_by_role(by_hand))
        return
    for name, pod in admitted.items():
        assert read_meaning(pod) == read_meaning(by_hand[name])
        assert INJECTION in pod["metadata"]["annotations"]
