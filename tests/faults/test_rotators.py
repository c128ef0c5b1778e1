"""The leader of two rotators goes in the middle of a rotation under load, on the real API server."""

import asyncio
import base64
import contextlib
import ssl
import time

import aiohttp
import pytest_asyncio
from plane import api, rotation, waiting
from test_admission import INJECTION, pod, policy

from certs import installation, inventory, pki, schedules
from certs import rotation as machine
from railwright.cluster import client as clients


@pytest_asyncio.fixture(loop_scope="session")
async def rotating(plane, site):
    await site.policy(policy("1"))
    installed = rotation.Rotation(plane, site)
    await installed.prepare()
    yield installed
    await installed.remove()


class Load:
    """Creates pods continuously, and records those that were refused or not injected."""

    def __init__(self, plane, namespace):
        self._plane, self._namespace = plane, namespace
        self.created, self.failed = 0, []

    async def one(self) -> bool:
        try:
            made_pod = await self._plane.api.create(pod("p", label="ib"), namespace=self._namespace, dry_run=True)
        except api.ApiError as error:
            self.failed.append(error.message)
            return False
        if INJECTION not in made_pod["metadata"].get("annotations", {}):
            self.failed.append("not injected")
            return False
        self.created += 1
        return True

    @contextlib.asynccontextmanager
    async def running(self, a_second: float = 40):
        async def forever():
            while True:
                await self.one()
                await asyncio.sleep(1 / a_second)

        task = asyncio.create_task(forever())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def steps_of(replica) -> int:
    return replica.output().count('"message": "step done"')


async def test_53_the_other_rotator_ends_a_rotation(fault, plane, namespace, site, rotating, tmp_path):
    first, second = await asyncio.gather(rotating.start(), rotating.start())
    issued = await rotating.issued()
    assert set(issued) == {"tls.crt", "tls.key", "ca.crt"}, "a server has no key but its own"
    async with rotating.kubelet("railwright-webhook-tls", tmp_path / "tls"):
        files = (f"--tls-cert={tmp_path / 'tls' / 'tls.crt'}", f"--tls-key={tmp_path / 'tls' / 'tls.key'}")
        site.webhook = await plane.serve("webhook", *files, site.kubeconfig("webhook"), "--drain-seconds=0.2")
        await site.webhook.ready()
        await rotating.configure(site.webhook.port, namespace)
        load = Load(plane, namespace)
        await waiting.wait(load.one, describe="the first pod with certificates that nobody made by hand")
        load.failed.clear()

        leader, other = (first, second) if await leads(rotating, first) else (second, first)
        async with load.running(), leaders(rotating, first, second) as seen:
            await begin(plane, rotating)
            # one of the two goes while the authorities overlap: what it has begun, the other ends
            await waiting.wait(lambda: len_of(rotating, 2), describe="a bundle of both authorities")
            await leader.stop()
            await waiting.wait(lambda: len_of(rotating, 1), seconds=60, describe="the old authority to be dropped")
        renewed = await waiting.wait(lambda: alone(rotating), describe="the servers' bundle to follow")
        assert renewed["tls.crt"] != issued["tls.crt"]
        assert set(pki.split_bundle(renewed["ca.crt"])).isdisjoint(pki.split_bundle(issued["ca.crt"]))
        assert await rotating.bundles() == {renewed["ca.crt"]}
        assert await rotating.bundles("ValidatingWebhookConfiguration") == {renewed["ca.crt"]}
        presented = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", site.webhook.port))
        assert pki.split_bundle(presented.encode()) == pki.split_bundle(renewed["tls.crt"])
        assert load.failed == []
        assert load.created > 100
        assert await steps_of(other) > 0, "the second replica has ended it"

        await overwrite(plane)
        began = time.monotonic()
        await waiting.wait(lambda: same(rotating, renewed["ca.crt"]), describe="the caBundle to be put back")
        back = time.monotonic() - began
        assert back < 5
        assert await waiting.wait(load.one, describe="a pod after that")
        status, exposition = await rotating.ops(other, "/metrics")
        assert status == 200
        assert 'railwright_certs_seconds_left{certificate="webhook"}' in exposition
        assert "railwright_certs_leading 1.0" in exposition
        assert (await rotating.ops(other, "/readyz"))[0] == 200
        assert max(seen) == 1, "one writer at a time"
        lost = await rotating.issued("railwright-extender-tls")
        made = await rotating.lost("railwright-extender-tls")
        assert made["tls.crt"] != lost["tls.crt"]
        assert made["ca.crt"] == lost["ca.crt"], "of the same authority"
        fault.saw(
            f"{load.created} creates during a complete rotation of certificate and CA, 0 failed; the leader "
            "went in the "
            f"overlap and the other did {await steps_of(other)} steps; never two leaders in {len(seen)} checks; an "
            f"overwritten caBundle restored in {back:.1f} s"
        )


@contextlib.asynccontextmanager
async def leaders(rotating, *replicas):
    """Yield a list of the number of leaders, observed continuously."""
    seen: list[int] = []

    async def look(replica) -> bool:
        try:
            return await leads(rotating, replica)
        except (aiohttp.ClientError, OSError):  # it has ended
            return False

    async def forever():
        while True:
            seen.append(sum([await look(replica) for replica in replicas]))
            await asyncio.sleep(0.1)

    task = asyncio.create_task(forever())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def leads(rotating, replica) -> bool:
    return "railwright_certs_leading 1.0" in (await rotating.ops(replica, "/metrics"))[1]


async def len_of(rotating, count) -> bool:
    bundles = await rotating.bundles()
    assert {len(pki.split_bundle(bundle)) for bundle in bundles} == {count}
    return True


async def alone(rotating) -> dict[str, bytes]:
    held = await rotating.issued()
    return held if len(pki.split_bundle(held["ca.crt"])) == 1 else {}


async def same(rotating, pem) -> bool:
    return await rotating.bundles() == {pem}


async def begin(plane, rotating) -> None:
    """Start a renewal of the CA as `certs rotate --renew-ca` does; the replicas continue it."""
    client = await clients.connect(str(plane.kubeconfig))
    turning = installation.Rotator(
        client,
        "railwright-system",
        inventory.list_specs("railwright-system"),
        schedule=schedules.Schedule(),
        clock=time.monotonic,
    )
    try:
        done = await turning.step(renew_ca=True)
    finally:
        await client.close()
    assert isinstance(done, machine.Step)
    assert done.action is machine.Action.PREPARE


async def overwrite(plane) -> None:
    """Overwrite the bundle, as an upgrade of a chart with another bundle does."""
    other = base64.b64encode(plane.certificates.authority.certificate_pem).decode()
    change = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": other}]
    await plane.api.patch("MutatingWebhookConfiguration", rotation.NAME, change)
