"""Pods that make room for others: their devices are theirs until they are gone, and then the gang lands well."""

import uuid

import pytest_asyncio
from plane import site as sites
from plane import training, waiting

QUEUE = "scheduling.volcano.sh/v1beta1/Queue"
STAYS = {training.LINGERS: "true"}
# Without `enqueue` and `overcommit` a job may ask for what is not free, as it must to preempt.
PREEMPT = {"actions": "allocate, preempt, backfill", "without": ("overcommit",)}
RECLAIM = {"actions": "allocate, reclaim, backfill", "without": ("overcommit",)}


@pytest_asyncio.fixture(loop_scope="session")
async def urgent(plane):
    """Yield a priority class above all others."""
    name = f"urgent-{uuid.uuid4().hex[:8]}"
    manifest = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    await plane.api.create({**manifest, "value": 1000})
    yield name
    await plane.api.delete("PriorityClass", name)


@pytest_asyncio.fixture(loop_scope="session")
async def queues(plane):
    """Yield two queues that deserve half of the cluster each."""
    names = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("research", "product")]
    for name in names:
        spec = {"weight": 1, "reclaimable": True}
        await plane.api.create(
            {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        )

    async def is_open():
        queues = [await plane.api.get(QUEUE, name) for name in names]
        return all(queue.get("status", {}).get("state") == "Open" for queue in queues)

    await waiting.wait(is_open, describe=f"queues {names} to be open")
    yield names
    for name in names:
        await waiting.wait(lambda name=name: remove_queue(plane, name), describe=f"queue {name} to be gone", seconds=60)


async def remove_queue(plane, queue: str) -> bool:
    """Close a queue and delete it: Volcano refuses to delete one that is open or has PodGroups."""
    await plane.api.delete(QUEUE, queue)
    return await plane.api.get_or_none(QUEUE, queue) is None


async def terminating(plane, namespace: str, name: str, count: int) -> list[dict]:
    async def list_deleted():
        listed = await training.pods(plane.api, namespace, name)
        going = [pod for pod in listed if "deletionTimestamp" in pod["metadata"]]
        assert len(going) == count, f"{len(going)} of {name} terminate"
        return going

    return await waiting.wait(list_deleted, seconds=60, describe=f"{count} pods of {name} to be on their way out")


async def assert_unplaced(plane, namespace: str, name: str) -> None:
    """Through two more sessions no pod of the job gets a node."""
    for _ in range(2):
        await plane.schedulers.volcano_session()
    listed = await training.pods(plane.api, namespace, name)
    assert not [pod["spec"]["nodeName"] for pod in listed if "nodeName" in pod["spec"]]


async def test_preemption_waits_until_victims_are_gone(
    plane, nodes, namespace, site, schedulers, extender_proxy, urgent
):
    a, b = await training.make_leaves(nodes, a=4, b=4)
    for name in b:  # no job of Volcano's: nothing it may preempt
        await plane.api.create(training.holder(name), namespace=namespace)
    conf = training.conf(extender_proxy.url, **PREEMPT)
    extender = await training.install(plane, site, extender_proxy, training.policy(rails="required"), conf)
    await plane.api.create(training.job("victim", 4, annotations=STAYS), namespace=namespace)
    victims = await training.running(plane.api, namespace, "victim", 4)

    await plane.api.create(training.job("urgent", 4, priority=urgent), namespace=namespace)
    going = await terminating(plane, namespace, "victim", 4)
    await assert_unplaced(plane, namespace, "urgent")
    said = await training.list_refusals(plane, extender_proxy.url, namespace, a)
    assert set(said) == set(a), said
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)
    assert await sites.metric(extender, "railwright_extender_requests_total", path="/volcano/allocate") > 4

    await training.let_go(plane.api, going[:3])
    await assert_unplaced(plane, namespace, "urgent")  # all or none
    await sites.wait_metric(extender, "railwright_assumed_pods", 3)  # announced in each session, never committed
    assert set(await training.list_refusals(plane, extender_proxy.url, namespace, a)) == set(a), (
        "nor are they anybody else's"
    )
    await training.let_go(plane.api, going[3:])
    pods = await training.running(plane.api, namespace, "urgent", 4)
    assert training.leaves_of(pods) == ["a"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {pod["spec"]["nodeName"] for pod in victims}
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)


async def test_preemption_empties_one_leaf(plane, nodes, namespace, site, schedulers, extender_proxy, urgent):
    for number in range(4):  # Volcano goes through nodes as they came: never two of a leaf after each other
        await training.make_leaves(nodes, first=number, a=1, b=1, c=1)
    conf = training.conf(extender_proxy.url, **PREEMPT)
    await training.install(plane, site, extender_proxy, training.policy(), conf)
    for name in ("low-0", "low-1", "low-2"):
        await plane.api.create(training.job(name, 4), namespace=namespace)
        await training.running(plane.api, namespace, name, 4)
    await plane.api.create(training.job("urgent", 4, priority=urgent), namespace=namespace)
    pods = await training.running(plane.api, namespace, "urgent", 4)
    assert len(training.leaves_of(pods)) == 1, [pod["spec"]["nodeName"] for pod in pods]


async def list_nominated_nodes(plane, namespace: str, name: str) -> list[str]:
    """Return the nodes that Volcano keeps for the pods of a job, by rank. It asks no extender (docs/schedulers.md)."""

    async def list_nominated():
        listed = await training.pods(plane.api, namespace, name)
        return [pod["status"]["nominatedNodeName"] for pod in listed if "nominatedNodeName" in pod["status"]]

    async def are_all_nominated():
        return len(await list_nominated()) == len(await training.pods(plane.api, namespace, name))

    await waiting.wait(are_all_nominated, describe=f"all pods of {name} to have a nominated node")
    return await list_nominated()


async def test_reclaim_gives_each_rank_its_nominated_node(
    plane, nodes, namespace, site, schedulers, extender_proxy, queues
):
    """Volcano alone decides which pods are evicted and which rank replaces them: its reclaim requests no scores."""
    research, product = queues
    await training.make_leaves(nodes, a=4, b=4)
    conf = training.conf(extender_proxy.url, **RECLAIM)
    extender = await training.install(plane, site, extender_proxy, training.policy(), conf)
    await plane.api.create(training.job("elastic", 8, least=1, queue=research, annotations=STAYS), namespace=namespace)
    await training.running(plane.api, namespace, "elastic", 8)

    await plane.api.create(training.job("owed", 4, queue=product), namespace=namespace)
    going = await terminating(plane, namespace, "elastic", 4)
    await assert_unplaced(plane, namespace, "owed")
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)
    nominated_pods = await list_nominated_nodes(plane, namespace, "owed")
    assert set(nominated_pods) == {pod["spec"]["nodeName"] for pod in going}

    await training.let_go(plane.api, going[:2])
    await assert_unplaced(plane, namespace, "owed")  # all or none
    await sites.wait_metric(extender, "railwright_assumed_pods", 2)
    await training.let_go(plane.api, going[2:])
    pods = await training.running(plane.api, namespace, "owed", 4)
    assert [pod["spec"]["nodeName"] for pod in pods] == nominated_pods
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)
