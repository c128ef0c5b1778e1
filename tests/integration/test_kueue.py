"""Jobs in the queues of the real Kueue keep their devices and annotations, Kueue's quotas count these devices, and
Kueue accepts the topologies that railwright writes.

Every job of fabric `ib` requests one leaf, and jobs of fabric `free` request none.
"""

import asyncio
import json

import devices
import pytest
import pytest_asyncio
from plane import conditions, gangs, jobs, kueue, manifests, waiting
from plane.manifests import LEAF, RAILS

from railwright.fabric import names

POLICY = manifests.policy(
    {
        "ib": manifests.fabric(2, placement={"domains": [LEAF, manifests.SPINE], "gangTopology": "preferred"}),
        "one": manifests.fabric(2, placement={"domains": [LEAF, manifests.SPINE], "gangTopology": "required"}),
        "cut": manifests.fabric(
            2,
            placement={"domains": [LEAF, manifests.SPINE], "gangTopology": "required"},
            nvlinkSegment=2,
        ),
        "free": manifests.fabric(2, placement={"domains": [LEAF, manifests.SPINE]}),
        "efa": manifests.fabric_of_claims(transport="efa", railsPerPod="proportional"),
    }
)
CLASSES = (devices.GPU_CLASS, devices.NIC_CLASS)
GPU = "nvidia.com/gpu"
NODES = {"type": "kwok"}
PER_POD = {GPU: 8, RAILS[0]: 1, RAILS[1]: 1}
DEVICES = {GPU: 64, RAILS[0]: 64, RAILS[1]: 64}
PLENTY = {"cpu": 64, **DEVICES}
JOB = "batch/v1/Job"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def leaves(plane, module_nodes, device_classes):
    """Start Kueue after the controllers of its jobs, with two leaves of two nodes, and a flavor with and one without
    their Topology.
    """
    await asyncio.gather(*map(plane.controllers.start, ("jobset", "training-operator", "mpi-operator")))
    await plane.controllers.start("kueue")
    await gangs.make_leaves(module_nodes, a=2, b=2)
    trees = (
        kueue.topology("leaves", manifests.SPINE, LEAF, kueue.HOSTNAME),
        kueue.flavor("placed", NODES, "leaves"),
        kueue.flavor("plain", NODES),
    )
    for tree in trees:
        await plane.api.create(tree)
    yield
    for tree in reversed(trees):
        await plane.api.delete(f"{kueue.VERSION}/{tree['kind']}", tree["metadata"]["name"])
    for kind in ("Mutating", "Validating"):  # they would be called for every pod of later tests
        await plane.api.delete(f"{kind}WebhookConfiguration", f"kueue-{kind.lower()}-webhook-configuration")


@pytest_asyncio.fixture(loop_scope="session")
async def make_queue(plane, namespace, leaves, installed):
    """Yield `await make_queue(["plain"], quota)`: create the queue `q` with these flavors and quotas."""
    name = f"q-{namespace}"

    async def make(flavors, quota=PLENTY):
        await kueue.make_queue(plane.api, namespace, name, flavors, quota)

    yield make
    await plane.remove_pods(namespace)
    await plane.api.delete(f"{kueue.VERSION}/LocalQueue", "q", namespace)
    await plane.api.delete(f"{kueue.VERSION}/ClusterQueue", name)
    await conditions.wait_gone(plane.api, f"{kueue.VERSION}/ClusterQueue", name)


def build_job(name, size, *, fabric="ib", gpus=8, annotations=None, **pods):
    """Return an indexed Job in the queue `q` with these annotations; `pods` are those of its template."""
    job = gangs.job(name, size, gpus=gpus, rails={}, fabric=fabric, **pods)
    job["metadata"]["labels"][kueue.QUEUE_NAME] = "q"
    job["metadata"]["annotations"] = annotations or {}
    return job


async def run(plane, namespace, job, size):
    """Create a job, and return its pods when they run."""
    await plane.api.create(job, namespace=namespace)
    return await wait_running(plane, namespace, job["metadata"]["name"], size)


async def wait_running(plane, namespace, name, size):
    return await conditions.wait_running(plane.api, namespace, f"{gangs.JOB_NAME}={name}", size)


def list_limits(pods):
    return [
        {key: int(amount) for key, amount in pod["spec"]["containers"][0]["resources"]["limits"].items()}
        for pod in pods
    ]


def list_additions(pods):
    """Return each pod's injection record, environment and names of volumes."""
    return [
        (
            json.loads(pod["metadata"]["annotations"][names.INJECTION]),
            pod["spec"]["containers"][0]["env"],
            [volume["name"] for volume in pod["spec"]["volumes"] if volume["name"].startswith(names.VOLUME_PREFIX)],
        )
        for pod in pods
    ]


async def set_active(plane, namespace, workload, *, active):
    """Evict a Workload, or allow its admission again."""
    change = {"spec": {"active": active}}
    await plane.api.patch(f"{kueue.VERSION}/Workload", workload["metadata"]["name"], change, namespace)


async def test_a_requeued_job_keeps_its_injected_devices_and_settings(plane, namespace, make_queue):
    await make_queue(["placed"])
    pods = await run(plane, namespace, build_job("j", 2), 2)
    assert list_limits(pods) == [PER_POD] * 2
    before = list_additions(pods)
    workload = await kueue.wait_workload(plane.api, namespace, "j", Admitted="True")
    await set_active(plane, namespace, workload, active=False)
    await kueue.wait_workload(plane.api, namespace, "j", Evicted="True", Admitted="False")
    await conditions.wait_object(plane.api, JOB, "j", namespace, spec={"suspend": True})
    template = (await plane.api.get(JOB, "j", namespace))["spec"]["template"]
    assert list_limits([template]) == [PER_POD]
    assert list_topology(template) == {PREFERRED: LEAF}
    await set_active(plane, namespace, workload, active=True)
    again = await wait_running(plane, namespace, "j", 2)
    assert {pod["metadata"]["uid"] for pod in again}.isdisjoint(pod["metadata"]["uid"] for pod in pods)
    assert list_limits(again) == [PER_POD] * 2
    assert list_additions(again) == before


def list_topology(holder):
    """Return Kueue's annotations about the topology of a pod or template."""
    annotations = holder["metadata"].get("annotations", {})
    return {key: value for key, value in annotations.items() if key.startswith(kueue.POD_SET)}


OF_KUEUE = {f"{kueue.POD_SET}unconstrained-topology": "true"}  # pods without a topology, where flavors have one


async def test_pods_of_a_kueue_group_get_devices_but_no_topology_annotation(plane, namespace, make_queue):
    await make_queue(["placed"])
    template = gangs.job("j", 1, rails={}, fabric="one")["spec"]["template"]
    template["metadata"]["labels"] |= {kueue.QUEUE_NAME: "q", "kueue.x-k8s.io/pod-group-name": "g"}
    for name in ("g-0", "g-1"):
        metadata = {"name": name, "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}}
        pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], **metadata}}
        await plane.api.create(pod, namespace=namespace)
    pods = await conditions.wait_running(plane.api, namespace, "kueue.x-k8s.io/pod-group-name=g", 2)
    assert list_limits(pods) == [PER_POD] * 2
    assert [list_topology(pod) for pod in pods] == [OF_KUEUE] * 2


async def test_a_stateful_set_gets_devices_but_no_topology_annotation(plane, namespace, make_queue):
    await make_queue(["placed"])
    template = gangs.job("j", 2, rails={}, fabric="one")["spec"]["template"]
    template["spec"].pop("restartPolicy", None)
    template["metadata"]["labels"]["app"] = "s"
    selector = {"matchLabels": {"app": "s"}}
    tree = manifests.build(
        "StatefulSet",
        "s",
        {"labels": {kueue.QUEUE_NAME: "q", names.FABRIC: "one"}},
        spec={"replicas": 2, "serviceName": "s", "selector": selector, "template": template},
    )
    made = await plane.api.create({**tree, "apiVersion": "apps/v1"}, namespace=namespace)
    record = json.loads(made["spec"]["template"]["metadata"]["annotations"][names.TOPOLOGY])
    assert record["reason"]["code"] == "TopologyNotWritten"
    assert list_topology(made["spec"]["template"]) == {}
    pods = await conditions.wait_running(plane.api, namespace, "app=s", 2)
    assert list_limits(pods) == [PER_POD] * 2


async def test_a_job_waits_while_a_quota_lacks_the_devices_that_its_pods_will_request(plane, namespace, make_queue):
    await make_queue(["plain"], {**PLENTY, RAILS[1]: 3})
    await run(plane, namespace, build_job("first", 2, fabric="free"), 2)
    await plane.api.create(build_job("second", 2, fabric="free"), namespace=namespace)
    await kueue.wait_refused(
        plane.api, namespace, "second", f"insufficient unused quota for {RAILS[1]} in flavor plain"
    )
    assert not await plane.api.list("Pod", namespace, labels=f"{gangs.JOB_NAME}=second")
    await plane.api.delete(JOB, "first", namespace)
    assert list_limits(await wait_running(plane, namespace, "second", 2)) == [PER_POD] * 2


async def test_pods_of_a_job_that_kueue_admits_with_fewer_pods_have_devices(plane, namespace, make_queue):
    await make_queue(["plain"], {**PLENTY, RAILS[0]: 2})
    job = build_job("j", 4, fabric="free", annotations={"kueue.x-k8s.io/job-min-parallelism": "1"})
    del job["spec"]["completionMode"]
    pods = await run(plane, namespace, job, 2)
    assert list_limits(pods) == [PER_POD] * 2


async def test_a_pod_that_kueue_moves_off_a_failed_node_keeps_devices(plane, namespace, make_queue, nodes):
    (members,) = await gangs.make_leaves(nodes, c=3)
    await make_queue(["placed"])
    job = build_job("j", 2, nodeSelector={LEAF: "c"})
    job["spec"]["template"]["metadata"]["annotations"] = {f"{kueue.POD_SET}required-topology": LEAF}
    pods = await run(plane, namespace, job, 2)
    before = list_additions(pods)
    lost = gangs.get_node(pods[0])
    taint = {"key": "example.com/broken", "effect": "NoExecute"}
    await plane.api.patch("Node", lost, {"spec": {"taints": [taint]}})

    async def is_replaced():
        replaced = await wait_running(plane, namespace, "j", 2)
        assert {gangs.get_node(pod) for pod in replaced} == {*members} - {lost}
        return replaced

    again = await waiting.wait(is_replaced, seconds=90, describe="Kueue to replace the node")
    assert list_limits(again) == [PER_POD] * 2
    assert list_additions(again) == before


async def test_pods_that_are_added_to_an_elastic_job_have_devices(plane, namespace, make_queue):
    await make_queue(["plain"])
    job = build_job("j", 1, fabric="free", annotations={"kueue.x-k8s.io/elastic-job": "true"})
    job["spec"] |= {"completions": 3, "parallelism": 1}
    await run(plane, namespace, job, 1)
    await plane.api.patch(JOB, "j", {"spec": {"parallelism": 3}}, namespace)
    assert list_limits(await wait_running(plane, namespace, "j", 3)) == [PER_POD] * 3


# --- claims ----------------------------------------------------------------------------------------------


async def test_a_quota_counts_claimed_devices_of_a_job_before_its_first_pod_exists(plane, namespace, make_queue, nodes):
    await nodes.make_with_slices("p4d-0")
    await nodes.make_with_slices("p4d-1")
    await make_queue(["plain"], {GPU: 64, kueue.RAIL: 4})
    await plane.api.create(build_job("first", 2, fabric="efa", gpus=4), namespace=namespace)
    first = await gangs.wait_bound(plane.api, namespace, 2, f"{gangs.JOB_NAME}=first")
    workload = await kueue.wait_workload(plane.api, namespace, "first", Admitted="True")
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    assert assigned["resourceUsage"] == {GPU: "8", kueue.RAIL: "4"}
    rails = {pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] for pod in first}
    assert len(rails) == 1
    await plane.api.create(build_job("second", 1, fabric="efa", gpus=4), namespace=namespace)
    await kueue.wait_refused(plane.api, namespace, "second", f"insufficient unused quota for {kueue.RAIL}")
    assert not await plane.api.list("Pod", namespace, labels=f"{gangs.JOB_NAME}=second")
    await plane.api.delete(JOB, "first", namespace)
    await gangs.wait_bound(plane.api, namespace, 1, f"{gangs.JOB_NAME}=second")


# --- topology ---------------------------------------------------------------------------------------------


PREFERRED = f"{kueue.POD_SET}preferred-topology"


def queue_job(tree, fabric="ib"):
    """Put a job of another controller into the queue, with the label of a fabric."""
    tree["metadata"]["labels"] = {kueue.QUEUE_NAME: "q", names.FABRIC: fabric}
    return tree


def build_job_set():
    tree = jobs.job_set("j")
    driver = tree["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    driver["containers"][0]["resources"] = {"requests": CPU}
    return queue_job(tree)


CPU = {"cpu": 1}
TOGETHER = {"podSetGroupName": "railwright"}


ACCEPTED = {  # the job, its pods, and the topology of each pod set in the Workload
    "Job that requires the widest level": (build_job("j", 3, fabric="one"), {"main": {"required": manifests.SPINE}}),
    "Job in segments": (
        build_job("j", 4, fabric="cut"),
        {"main": {"required": manifests.SPINE, "podSetSliceRequiredTopology": LEAF, "podSetSliceSize": 2}},
    ),
    "JobSet": (build_job_set(), {"driver": {}, "workers": {"preferred": LEAF}}),
    "MPIJob": (
        queue_job(jobs.mpi_job("j", launcher_limits=CPU)),
        {"launcher": {}, "worker": {"preferred": LEAF}},
    ),
    "PyTorchJob that requires a level": (
        queue_job(jobs.pytorch_job("j"), "one"),
        {role: {"required": manifests.SPINE, **TOGETHER} for role in ("master", "worker")},
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
async def test_kueue_places_a_gang_by_the_topology_that_railwright_writes(plane, namespace, make_queue, case):
    tree, expected = ACCEPTED[case]
    await make_queue(["placed"])
    await plane.api.create(tree, namespace=namespace)
    workload = await kueue.wait_workload(plane.api, namespace, "j", Admitted="True")
    requested = {
        pod_set["name"]: {key: text for key, text in pod_set.get("topologyRequest", {}).items() if key in KEYS}
        for pod_set in workload["spec"]["podSets"]
    }
    assert requested == expected
    for assigned in workload["status"]["admission"]["podSetAssignments"]:
        assert assigned["topologyAssignment"], assigned


KEYS = ("required", "preferred", "podSetGroupName", "podSetSliceRequiredTopology", "podSetSliceSize")
