"""Faults of our own processes: webhooks that die or hang under load."""

import asyncio
import os
import signal
import time

import aiohttp
import pytest
import pytest_asyncio
from plane import api, load, spread, waiting

DRAIN = "--drain-seconds=2"  # 10 in the manifests


@pytest_asyncio.fixture(loop_scope="session")
async def service(plane, namespace, site):
    """Yield a Service with two replicas of the webhook, which the API server calls for the namespace."""
    await site.policy(load.POLICY)
    async with spread.Spread(plane.session) as replicas:
        replicas.members += await asyncio.gather(site.start_webhook(DRAIN), site.start_webhook(DRAIN))
        await waiting.wait(lambda: len(replicas.ready) == 2, describe="both replicas to be ready")
        await plane.register_webhook(replicas.port, namespaces=[namespace])
        yield replicas
        await plane.unregister_webhook(namespaces=[namespace])
        for server in replicas.members:
            await server.stop()


async def test_01_pods_are_admitted_while_one_of_two_webhooks_is_killed(plane, service, namespace):
    killed = service.members[0]
    async with load.Load(plane.api, namespace) as running:
        await waiting.wait(lambda: running.created > 200, describe="200 creates")
        at = time.monotonic()
        await killed.kill()
        service.members.remove(killed)
        before = running.created
        await waiting.wait(lambda: running.created > before + 400, describe="400 more creates")
    last = max((when for when, _ in running.failures), default=at) - at
    assert (running.lost, running.uninjected) == (0, 0), running.failures[:3]
    assert last < 2.0, running.failures[-3:]


async def test_05_the_api_server_stops_waiting_for_a_hanging_webhook(plane, service, namespace):
    only, other = service.members
    await other.stop()
    service.members.remove(other)
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
    await waiting.wait(lambda: bool(service.ready), describe="readiness")
    assert load.is_injected(await plane.api.create(load.POD, namespace=namespace, dry_run=True))
