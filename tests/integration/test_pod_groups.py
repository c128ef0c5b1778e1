"""Gangs by PodGroup (scheduling.k8s.io/v1beta1, gates on) with the extender: preemption, simulations, sizes, explain.

kube-scheduler draws the order of topology domains and ties between them, so `make test-slow PARTS=integration` runs
each case once more.
"""

import asyncio
import contextlib

import devices
import plane_fixtures
import proxy
import pytest
import pytest_asyncio
from plane import api as apis
from plane import commands, gangs, manifests, replicas, waiting
from plane import plane as planes
from plane import site as sites

GROUPS = "scheduling.k8s.io/v1beta1"
POD_GROUP = f"{GROUPS}/PodGroup"
REFUSED = "railwright_extender_rejected_nodes_total"
PRIORITIES = {"low": 100, "high": 1000}
KEYS = pytest.mark.parametrize("key", ["", gangs.LEAF], ids=["no key", "leaf key"])
_MORE = pytest.param(1, marks=pytest.mark.slow)
RUNS = pytest.mark.parametrize("run", [0, _MORE], indirect=True)


class Plane(planes.Plane):
    """A control plane in which kube-scheduler places PodGroups."""

    gates = ("GenericWorkload", "TopologyAwareWorkloadScheduling", "WorkloadWithJob")
    apis = (GROUPS,)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane():
    async with plane_fixtures.run_plane(Plane) as running:
        for name, value in PRIORITIES.items():
            await running.api.create(manifests.build("PriorityClass", name, value=value))
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def counted(plane):
    """Yield railwright beside a kube-scheduler that counts the rails, as in the shipped example, and Volcano."""
    async with gangs.beside_volcano(plane) as running:
        yield running


@pytest.fixture(autouse=True)
def run(request):
    """Return the number of the run of a case; `make test` has the first only."""
    return getattr(request, "param", 0)


def build_group(name: str, minimum: int, *, key: str = "", priority: str = "") -> apis.Object:
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    if priority:
        spec["priorityClassName"] = priority
    return {"apiVersion": GROUPS, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def build_pods(name: str, size: int, *, priority: str = "", **kinds) -> list[apis.Object]:
    spec = {"schedulingGroup": {"podGroupName": name}} | ({"priorityClassName": priority} if priority else {})
    return [gangs.pod(f"{name}-{rank}", labels={"of": name}, **spec, **kinds) for rank in range(size)]


async def start(plane, namespace, name, size, *, key="", priority="", **kinds) -> None:
    """Create the pods and then the PodGroup, with which kube-scheduler begins."""
    await gangs.create(plane.api, namespace, build_pods(name, size, priority=priority, **kinds))
    await plane.api.create(build_group(name, size, key=key, priority=priority), namespace=namespace)


async def bound(plane, namespace, name, size) -> apis.Objects:
    return await gangs.bound(plane.api, namespace, size, f"of={name}")


async def wait_refused(plane, namespace, name) -> None:
    """Wait until kube-scheduler has tried a PodGroup and said that it fits nowhere."""

    async def is_refused() -> bool:
        group = await plane.api.get(POD_GROUP, name, namespace)
        said = [row.get("message", "") for row in group.get("status", {}).get("conditions", ())]
        assert any("placements are available" in message or "schedulable" in message for message in said), said
        return True

    await waiting.wait(is_refused, describe=f"PodGroup {name} to be refused")


async def list_staying(plane, namespace, labels="") -> apis.Objects:
    """Return the pods that are not terminating."""
    listed = await plane.api.list("Pod", namespace, labels=labels)
    return [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]


# --- preemption -----------------------------------------------------------------------------------------------


@RUNS
@KEYS
async def test_a_gang_of_higher_priority_evicts_as_many_pods_as_it_has(plane, counted, nodes, namespace, key):
    """kube-scheduler chooses the victims. Only a key keeps them in one leaf."""
    await gangs.make_leaves(nodes, a=4, b=4)
    await start(plane, namespace, "low", 8, priority="low")
    await bound(plane, namespace, "low", 8)
    await start(plane, namespace, "high", 4, key=key, priority="high")
    placed = await bound(plane, namespace, "high", 4)
    assert len(set(gangs.leaves_of(placed))) == 1 or not key, gangs.leaves_of(placed)
    assert len(await list_staying(plane, namespace, "of=low")) == 4


@RUNS
async def test_a_gang_of_the_same_priority_evicts_no_pod(plane, counted, nodes, namespace):
    await gangs.make_leaves(nodes, a=4)
    await start(plane, namespace, "first", 4, priority="high")
    await bound(plane, namespace, "first", 4)
    await start(plane, namespace, "second", 4, priority="high")
    await wait_refused(plane, namespace, "second")
    await bound(plane, namespace, "first", 4)


@RUNS
async def test_a_gang_evicts_pods_that_hold_only_its_rails(plane, counted, nodes, namespace):
    """Their GPUs are not scarce."""
    await gangs.make_leaves(nodes, a=4, b=4)
    await start(plane, namespace, "low", 8, priority="low", gpus=2)
    await bound(plane, namespace, "low", 8)
    await start(plane, namespace, "high", 4, priority="high", gpus=2)
    placed = await bound(plane, namespace, "high", 4)
    assert len(set(map(gangs.node_of, placed))) == 4
    assert len(await list_staying(plane, namespace, "of=low")) == 4


@RUNS
@pytest.mark.parametrize("late_seconds", [0.0, 0.5])
async def test_a_pod_without_a_gang_may_use_the_node_of_its_victim(plane, counted, nodes, namespace, late_seconds):
    """So railwright makes no pod evict a second one, also where its watch is late.

    kube-scheduler alone does in 2 of 75 such runs on a busy machine, where it tries a pod again before its cache shows
    that the victim is deleted. It asks no extender between (https://github.com/kubernetes/kubernetes/issues/141694).
    """
    await gangs.make_leaves(nodes, a=4, b=4, c=4)
    async with run_late_extender(plane, counted) as (extender, network):
        low = [gangs.pod(f"low-{n}", labels={"of": "low"}, priorityClassName="low") for n in range(12)]
        await gangs.create(plane.api, namespace, low)
        await bound(plane, namespace, "low", 12)
        refused = await sites.metric(extender, REFUSED)
        network.delay_seconds = late_seconds
        high = [gangs.pod(f"high-{n}", labels={"of": "high"}, priorityClassName="high") for n in range(4)]
        await gangs.create(plane.api, namespace, high)
        placed = await bound(plane, namespace, "high", 4)
        await asyncio.sleep(1)  # for further evictions
        assert await sites.metric(extender, REFUSED) == refused
        network.delay_seconds = 0.0
        left = await list_staying(plane, namespace, "of=low")
        assert len(set(map(gangs.node_of, [*left, *placed]))) == len(left) + 4
        assert len(left) >= 7, "one more than needed is kube-scheduler's"


@contextlib.asynccontextmanager
async def run_late_extender(plane, counted):
    """Have the schedulers ask another extender. Yield it, and its network to the API server."""
    usual = counted.proxy.backend
    async with proxy.Proxy(plane.parts.port["kube-apiserver"]) as network:
        config = sites.act_as(plane, "extender", server=f"https://127.0.0.1:{network.port}")
        extender = await plane.serve("extender", "--plain-http", "--drain-seconds=0.2", config)
        await extender.ready()
        counted.proxy.backend = extender.port
        try:
            yield extender, network
        finally:
            counted.proxy.backend = usual
            await extender.stop()


@RUNS
async def test_a_gang_evicts_pods_that_volcano_has_placed(plane, counted, nodes, namespace):
    """No controller creates them again: Volcano would give them the same nodes, because it reads no nominations."""
    await gangs.make_leaves(nodes, a=4, b=4)
    spec = {"schedulerName": "volcano", "priorityClassName": "low"}
    low = [gangs.pod(f"low-{number}", labels={"of": "low"}, **spec) for number in range(8)]
    await gangs.create(plane.api, namespace, low)
    await bound(plane, namespace, "low", 8)
    await start(plane, namespace, "high", 4, priority="high")
    await bound(plane, namespace, "high", 4)
    left = await list_staying(plane, namespace)
    assert len({gangs.node_of(pod) for pod in left}) == len(left) == 8


@pytest.mark.slow
async def test_a_gang_evicts_no_more_volcano_pods_than_it_needs(plane, counted, nodes, namespace):
    """The Job's controller creates them again at once, and Volcano may take nodes that are nominated for the gang."""
    await gangs.make_leaves(nodes, a=4, b=4)
    job = gangs.volcano_job("low", 8, priorityClassName="low")
    job["spec"]["priorityClassName"] = "low"
    await plane.api.create(job, namespace=namespace)
    of_job = f"{gangs.VOLCANO_JOB}=low"
    first_uids = {pod["metadata"]["uid"] for pod in await gangs.bound(plane.api, namespace, 8, of_job)}
    await start(plane, namespace, "high", 4, priority="high")
    placed = await bound(plane, namespace, "high", 4)
    running = [pod for pod in await list_staying(plane, namespace, of_job) if gangs.node_of(pod)]
    assert len([pod for pod in running if pod["metadata"]["uid"] in first_uids]) == 4
    taken = [gangs.node_of(pod) for pod in (*running, *placed)]
    assert len(set(taken)) == len(taken), taken


# --- simulations ----------------------------------------------------------------------------------------------


@RUNS
@pytest.mark.parametrize(("size", "key"), [(24, ""), (12, gangs.LEAF)], ids=["no key", "leaf key"])
async def test_the_next_gang_gets_its_leaf_after_one_that_fits_nowhere(plane, counted, nodes, namespace, size, key):
    await gangs.make_leaves(nodes, few=4, right=8, many=11)
    await gangs.create(plane.api, namespace, build_pods("next", 8))
    await start(plane, namespace, "big", size, key=key)
    await wait_refused(plane, namespace, "big")
    await plane.api.create(build_group("next", 8), namespace=namespace)
    assert set(gangs.leaves_of(await bound(plane, namespace, "next", 8))) == {"right"}


@RUNS
async def test_volcano_places_the_gang_after_one_that_fits_nowhere(plane, counted, nodes, namespace):
    await gangs.make_leaves(nodes, few=4, right=8, many=11)
    await start(plane, namespace, "big", 24)
    await wait_refused(plane, namespace, "big")
    await plane.api.create(gangs.volcano_job("next", 8), namespace=namespace)
    placed = await gangs.bound(plane.api, namespace, 8, f"{gangs.VOLCANO_JOB}=next")
    assert set(gangs.leaves_of(placed)) == {"right"}


@RUNS
@KEYS
async def test_two_gangs_at_once_get_a_leaf_each(plane, counted, nodes, namespace, key):
    await gangs.make_leaves(nodes, one=6, two=6, few=2)
    for name in ("left", "right"):
        await gangs.create(plane.api, namespace, build_pods(name, 6))
    await asyncio.gather(
        *(plane.api.create(build_group(name, 6, key=key), namespace=namespace) for name in ("left", "right"))
    )
    leaves = [set(gangs.leaves_of(await bound(plane, namespace, name, 6))) for name in ("left", "right")]
    assert sorted(leaves, key=str) == [{"one"}, {"two"}]


@RUNS
async def test_explain_describes_the_leaf_that_kube_scheduler_took(plane, counted, nodes, namespace):
    await gangs.make_leaves(nodes, few=4, right=8, many=11)
    await start(plane, namespace, "train", 8, key=gangs.LEAF)
    (leaf,) = set(gangs.leaves_of(await bound(plane, namespace, "train", 8)))

    async def is_placed() -> dict:
        said = await commands.explain(plane, counted.extender, namespace, "train-0")
        assert said["gang"]["placed"] == 8
        return said

    said = await waiting.wait(is_placed, describe="the gang's placement to be assessed")
    assert (said["gang"]["state"], said["gang"]["leaves"]) == ("placed", 1), said
    (row,) = [row for row in said["nodes"] if row["node"] == said["node"]]
    assert row["leaf"] == f"{leaf} in s0"


# --- sizes -----------------------------------------------------------------------------------------------------


@RUNS
async def test_a_job_without_a_group_size_is_a_gang_of_its_parallelism(plane, counted, nodes, namespace):
    await gangs.make_leaves(nodes, few=4, right=8, many=11)
    await gangs.start_job(counted, namespace, gangs.job("train", 8))
    placed = await gangs.bound(plane.api, namespace, 8, f"{gangs.JOB_NAME}=train")
    assert all("schedulingGroup" in pod["spec"] for pod in placed)
    assert set(gangs.leaves_of(placed)) == {"right"}
    explanation = await commands.explain(plane, counted.extender, namespace, placed[0]["metadata"]["name"])
    assert explanation["gang"]["size"] == 8


# --- claims ----------------------------------------------------------------------------------------------------

NIC_CLASS = devices.build_class("dranet", 'device.driver == "dra.net" && has(device.attributes["dra.net"].rdmaDevice)')
CLASSES = (devices.GPU_CLASS, NIC_CLASS)
POLICY = manifests.policy({"claimed": manifests.fabric_of_claims(placement={"domains": [gangs.LEAF, gangs.SPINE]})})


@pytest_asyncio.fixture(loop_scope="session")
async def claims(plane, device_classes, installed):
    """Install railwright beside kube-scheduler, with rails that come as claims."""
    await installed.install_extender(POLICY)
    await plane.schedulers.kube(gangs.entry(installed.proxy.url, managed=[manifests.CALL]))


@RUNS
@pytest.mark.parametrize(("size", "key"), [(12, ""), (6, gangs.LEAF)], ids=["no key", "leaf key"])
async def test_with_claims_too_the_next_gang_gets_its_leaf(plane, nodes, namespace, claims, size, key):
    await gangs.make_leaves(nodes, None, few=2, right=4, many=5)
    kinds = {"fabric": "claimed", "rails": {}}
    await gangs.create(plane.api, namespace, build_pods("next", 4, **kinds))
    await start(plane, namespace, "big", size, key=key, **kinds)
    await wait_refused(plane, namespace, "big")
    await plane.api.create(build_group("next", 4), namespace=namespace)
    placed = await bound(plane, namespace, "next", 4)
    assert all(pod["spec"].get("resourceClaims") for pod in placed)
    assert set(gangs.leaves_of(placed)) == {"right"}


@RUNS
async def test_with_claims_too_a_pod_gets_the_node_of_its_victim(plane, nodes, namespace, claims):
    """CPUs are short. Its devices are others than the victim's: kube-scheduler releases no claim in a simulation."""
    await gangs.make_leaves(nodes, None, a=2)
    for priority, rails in (("low", "rail0,rail1"), ("high", "rail2,rail3")):
        kinds = {"gpus": 4, "fabric": "claimed", "rails": {}, "priorityClassName": priority}
        pods = [gangs.pod(f"{priority}-{number}", labels={"of": priority}, **kinds) for number in range(2)]
        for pod in pods:
            pod["metadata"]["annotations"] = {manifests.CALL: rails}
            pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "100"
        await gangs.create(plane.api, namespace, pods)
        placed = await bound(plane, namespace, priority, 2)
        assert all(pod["spec"].get("resourceClaims") for pod in placed)
        assert len(set(map(gangs.node_of, placed))) == 2


# --- two replicas ---------------------------------------------------------------------------------------------


async def test_a_gang_gets_its_leaf_when_the_replica_in_use_is_killed(plane, nodes, namespace):
    await gangs.make_leaves(nodes, few=4, right=8, many=11)
    async with replicas.running(plane, gangs.POLICY) as pair:
        await plane.schedulers.kube(gangs.entry(pair.proxy.url))
        killed = []

        async def kill(request):
            if request.path == "/scheduler/filter" and not killed and pair.proxy.counts[request.path] >= 4:
                killed.append(await pair.kill_used())

        pair.proxy.hook = kill
        await start(plane, namespace, "train", 8)
        placed = await bound(plane, namespace, "train", 8)
        pair.proxy.hook = None
        assert killed
        assert set(gangs.leaves_of(placed)) == {"right"}
