"""Rails that are dead or degraded, and who preempts for one, under kube-scheduler; more of that is in tests/faults."""

import pytest_asyncio
from plane import kube as kubes


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def kube(plane):
    async with kubes.running(plane, ignored=True) as running:
        yield running


async def pod(plane, namespace: str, name: str, **kinds) -> dict:
    return await plane.api.create(kubes.pod(name, labels={"name": name}, **kinds), namespace=namespace)


async def test_a_dead_rail_refuses_a_node_for_good_and_preemption_is_not_tried_there(plane, kube, nodes, namespace):
    for name in ("dead", "busy"):
        await nodes.make(name, rails=kubes.ONE_EACH)
        assert (
            await kubes.place(plane.api, namespace, f"on-{name}", gpus=0) == name
        )  # of no priority: each a victim to be
    await nodes.offer("dead", {kubes.RAILS[0]: 0})
    await pod(plane, namespace, "waiting", gpus=0, priorityClassName="system-cluster-critical")
    message = await kubes.event(plane.api, namespace, "waiting", kubes.BUSY, kubes.NEVER, "preemption: ")
    # It looked for victims on the busy node (and saw none: the rails are left to us), and only there.
    assert message.partition("preemption: ")[2] == 'expected at least one victim pod on node "busy"'


async def test_a_rail_that_lost_devices_lowers_the_score_and_does_not_refuse(plane, kube, nodes, namespace):
    for name in ("degraded", "whole"):
        await nodes.make(name, gpus=4, rails=kubes.SHARED)
    await nodes.offer("degraded", {kubes.RAILS[0]: 50})
    await nodes.resize("whole", {"cpu": 4})  # by CPU kube-scheduler itself prefers the other
    kinds = {"gpus": 4, "rails": kubes.ONE_EACH}
    assert await kubes.place(plane.api, namespace, "first", **kinds) == "whole"
    assert await kubes.place(plane.api, namespace, "second", **kinds) == "degraded"


async def test_with_rails_counted_by_kube_scheduler_a_rail_is_won_by_priority(plane, kube, nodes, namespace):
    for name in ("dead", "held"):
        await nodes.make(name, rails=kubes.ONE_EACH)
    await nodes.offer("dead", {kubes.RAILS[0]: 0})
    assert await kubes.place(plane.api, namespace, "victim", gpus=0) == "held"
    await plane.schedulers.kube(kubes.entry(kube.door.url, ignored=False))
    urgent = await kubes.place(plane.api, namespace, "urgent", gpus=0, priorityClassName="system-cluster-critical")
    assert urgent == "held"
    assert await plane.api.get_or_none("Pod", "victim", namespace) is None
