"""Faults of our own processes: webhooks that die, hang or restart under load."""

import asyncio
import os
import signal
import time

import aiohttp
import pytest
import pytest_asyncio
from plane import api, load, spread, waiting

LABEL = "railwright.io/fabric"
DRAIN = 2.0  # seconds; 10 in the manifests


class Webhooks:
    """The replicas behind one port that the API server calls."""

    def __init__(self, plane, site, behind: spread.Spread) -> None:
        self.plane, self.site, self.behind = plane, site, behind

    async def start(self):
        server = await self.site.start_webhook(f"--drain-seconds={DRAIN}")
        self.behind.members.append(server)
        await waiting.wait(lambda: server in self.behind.ready, describe="the new replica to be among the ready ones")
        return server

    async def stop(self, server) -> int:
        code = await server.stop()
        self.behind.members.remove(server)
        return code


@pytest_asyncio.fixture(loop_scope="session")
async def webhooks(plane, namespace, site):
    """Yield two replicas, registered for the namespace."""
    await site.policy(load.POLICY)
    async with spread.Spread(plane.session) as behind:
        made = Webhooks(plane, site, behind)
        await asyncio.gather(made.start(), made.start())
        await plane.register_webhook(behind.port, namespaces=[namespace])
        yield made
        await plane.unregister_webhook(namespaces=[namespace])
        for server in behind.members:
            await server.stop()


async def test_01_one_of_two_webhooks_is_killed_under_load(webhooks, namespace):
    killed = webhooks.behind.members[0]
    async with load.Load(webhooks.plane.api, namespace) as running:
        await waiting.wait(lambda: running.created > 200, describe="200 creates")
        at = time.monotonic()
        await killed.kill()
        webhooks.behind.members.remove(killed)
        before = running.created
        await waiting.wait(lambda: running.created > before + 400, describe="400 more creates")
    last = max((when for when, _ in running.failures), default=at) - at
    assert (running.lost, running.uninjected) == (0, 0), running.failures[:3]
    assert last < 2.0, running.failures[-3:]


async def test_02_both_webhooks_are_restarted_under_load(webhooks, namespace):
    old = list(webhooks.behind.members)
    async with load.Load(webhooks.plane.api, namespace) as running:
        for server in old:
            await webhooks.start()
            assert await webhooks.stop(server) == 0
        before = running.created
        await waiting.wait(lambda: running.created > before + 100, describe="100 creates by the new replicas")
    assert (running.failures, running.lost, running.uninjected) == ([], 0, 0)
    for server in old:
        log = server.process.output()
        assert log.index('"draining"') < log.index('"not ready"', log.index('"draining"')), log[-500:]


async def test_05_a_hanging_webhook_is_given_up(plane, webhooks, namespace):
    for server in webhooks.behind.members[1:]:
        await webhooks.stop(server)
    [only] = webhooks.behind.members
    assert load.is_injected(await plane.api.create(load.POD, namespace=namespace, dry_run=True))
    os.kill(only.process.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(api.ApiError, match=r"pods\.railwright\.io") as refused:
            await plane.api.create(load.POD, namespace=namespace, dry_run=True)
        seconds = time.monotonic() - began
        with pytest.raises(TimeoutError):  # as the kubelet's probe would, and restart it
            await plane.session.get(f"{only.ops_url}/livez", timeout=aiohttp.ClientTimeout(1))
        unlabelled = {**load.POD, "metadata": {"generateName": "plain-"}}
        plain = await plane.api.create(unlabelled, namespace=namespace, dry_run=True)
    finally:
        os.kill(only.process.pid, signal.SIGCONT)
    assert 3 < seconds < 8, refused.value
    assert not load.is_injected(plain)
    await waiting.wait(lambda: bool(webhooks.behind.ready), describe="readiness")
    assert load.is_injected(await plane.api.create(load.POD, namespace=namespace, dry_run=True))
