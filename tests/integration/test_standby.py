"""Two extenders and one Lease on the real API server: Volcano's requests when the leader crashes or stops."""

import asyncio
import collections
import time

import pytest_asyncio
from plane import conditions, gangs, waiting
from plane import replicas as deployments
from plane import site as sites
from plane import volcano_gangs as volcano


@pytest_asyncio.fixture(loop_scope="session")
async def replicas(plane):
    async with deployments.pair(plane, gangs.POLICY) as running:
        await plane.schedulers.volcano(conf=volcano.conf(running.proxy.url, httpTimeout="2s"))
        yield running


async def test_gangs_are_placed_once_while_leaders_change(plane, replicas, nodes, namespace):
    jobs = volcano.VolcanoGangs(replicas.site, namespace)
    await gangs.make_leaves(nodes, a=6, b=6, c=6)
    first = await replicas.leader()
    slices = await plane.api.list("EndpointSlice", sites.NAMESPACE)
    assert [slice_["metadata"]["name"] for slice_ in slices] == [deployments.SLICE], "nothing is mirrored"
    killed: list[float] = []

    async def kill(request):
        if request.path == "/volcano/allocate" and replicas.proxy.counts[request.path] == 5 and not killed:
            killed.append(time.monotonic())
            await first.kill()

    replicas.proxy.hook = kill
    names = [f"gang-{number}" for number in range(5)]
    for name in names[:4]:
        await jobs.create(name, 3)
    await waiting.wait(lambda: killed, describe="Volcano to announce a fifth pod")
    seconds = await replicas.taken_over(first, killed[0])
    assert seconds < 10, "a lease of three seconds, and what a busy machine adds"
    second = await replicas.leader()
    await jobs.create(names[4], 3)
    placed = [await jobs.running(name, 3) for name in names]
    places = collections.Counter(gangs.node_of(pod) for gang in placed for pod in gang)
    assert set(places.values()) == {1}, places
    assert len(gangs.runs_of(placed[4])) == 1, "the new leader knows which nodes are taken"
    await sites.wait_metric(second, "railwright_assumed_pods", 0)
    assert await sites.metric(second, "railwright_leader") == 1

    # the Deployment brings another one; then the leader is stopped, and no extender runs
    third = await replicas.start()
    assert await sites.metric(third, "railwright_leader") == 0
    began = time.monotonic()
    stopping = asyncio.create_task(second.stop())
    assert await replicas.taken_over(second, began) < 3, "it has not waited for the lease to end"
    assert await stopping == 0
    await jobs.run("next", 1)
    assert await third.stop() == 0
    await waiting.wait(lambda: replicas.proxy.backend is None, describe="the last leader to take itself away")
    await jobs.run("alone", 1)

    await plane.api.delete("Service", deployments.SERVICE, sites.NAMESPACE)
    for kind, name in (("EndpointSlice", deployments.SLICE), ("Endpoints", deployments.SERVICE)):
        await conditions.gone(plane.api, kind, name, sites.NAMESPACE)
