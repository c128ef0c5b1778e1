"""Preemption: victims keep their devices until they are deleted, and then the gang is placed well."""

import uuid

import pytest_asyncio
from plane import gangs, manifests, waiting
from plane import site as sites
from plane.volcano_gangs import LINGERS

STAYS = {LINGERS: "true"}
# Without `enqueue` and `overcommit` a job may ask for what is not free, as it must to preempt.
PREEMPT = {"actions": "allocate, preempt, backfill", "without": ("overcommit",)}


@pytest_asyncio.fixture(loop_scope="session")
async def urgent(plane):
    """Yield a priority class with a higher value than all others."""
    name = f"urgent-{uuid.uuid4().hex[:8]}"
    await plane.api.create(manifests.build("PriorityClass", name, value=1000))
    yield name
    await plane.api.delete("PriorityClass", name)


async def wait_terminating(volcano_gangs, name: str, count: int) -> list[dict]:
    async def list_deleted():
        going = [pod for pod in await volcano_gangs.pods(name) if "deletionTimestamp" in pod["metadata"]]
        assert len(going) == count, f"{len(going)} of {name} terminate"
        return going

    return await waiting.wait(list_deleted, seconds=60, describe=f"{count} pods of {name} to be on their way out")


async def assert_waits(plane, volcano_gangs, name: str) -> None:
    """Assert that no pod of the job is bound in two more sessions."""
    for _ in range(2):
        await plane.schedulers.volcano_session()
    await volcano_gangs.assert_unplaced(name)


async def test_a_preempting_gang_starts_only_once_all_victims_are_deleted(
    plane, nodes, namespace, volcano_gangs, urgent
):
    a, b = await gangs.make_leaves(nodes, a=4, b=4)
    await gangs.hold_devices(plane.api, namespace, *b)  # no job of Volcano's: nothing it may preempt
    extender = await volcano_gangs.install(**PREEMPT)
    victims = await volcano_gangs.run("victim", 4, annotations=STAYS)
    announced = await sites.read_metric(extender, "railwright_requests_total", path="/volcano/allocate")

    await volcano_gangs.create("urgent", 4, priority=urgent)
    going = await wait_terminating(volcano_gangs, "victim", 4)
    await assert_waits(plane, volcano_gangs, "urgent")
    assert await gangs.list_full(volcano_gangs.site, a, gpus=8) == set(a)
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)
    assert await sites.read_metric(extender, "railwright_requests_total", path="/volcano/allocate") > announced

    await volcano_gangs.end_terminating(going[:3])
    await assert_waits(plane, volcano_gangs, "urgent")  # all or none
    await sites.wait_metric(extender, "railwright_assumed_pods", 3)  # announced in each session, never committed
    assert await gangs.list_full(volcano_gangs.site, a, gpus=8) == set(a), "nor are they anybody else's"
    await volcano_gangs.end_terminating(going[3:])
    pods = await volcano_gangs.wait_running("urgent", 4)
    assert {*map(gangs.get_node, pods)} == {*map(gangs.get_node, victims)} == set(a)
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)
