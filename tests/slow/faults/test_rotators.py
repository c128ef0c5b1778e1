"""A rotation of certificate and CA under load by two rotators, one of which is ended during it."""

import asyncio
import base64
import dataclasses
import ssl
import time
import uuid

import pytest_asyncio
from plane import load, processes, rotation, servers, waiting

from certs import installation, pki, schedules
from certs import rotation as machine
from railwright.cluster import client as clients


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rotating(plane, module_site):
    await module_site.policy(load.POLICY)
    installed = rotation.Rotation(plane, module_site)
    await installed.prepare()
    yield installed
    await installed.remove()


@dataclasses.dataclass
class Rotated:
    """The observations of a rotation of certificate and CA under load."""

    load: load.Load
    issued: dict[str, bytes]
    renewed: dict[str, bytes]
    webhook: servers.Server
    other: processes.Process  # the rotator that ended it


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def namespace(plane):
    """Yield one namespace for the tests of this file."""
    name = f"rotating-{uuid.uuid4().hex[:8]}"
    await plane.make_namespace(name)
    yield name
    await plane.remove_namespace(name)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rotated(plane, namespace, module_site, rotating, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    first, second = await asyncio.gather(rotating.start(), rotating.start())
    issued = await rotating.wait_issued()
    async with rotating.kubelet("railwright-webhook-tls", folder):
        files = (f"--tls-cert={folder / 'tls.crt'}", f"--tls-key={folder / 'tls.key'}")
        webhook = await plane.serve("webhook", *files, module_site.kubeconfig("webhook"), "--drain-seconds=0.2")
        module_site.webhook = await webhook.ready()
        await rotating.configure(webhook.port, namespace)
        await waiting.wait(
            lambda: is_injected(plane, namespace), describe="the first pod with certificates that nobody made by hand"
        )
        creating = load.Load(plane.api, namespace, per_second=40)
        async with creating:
            await begin(plane)
            # one of the two ends while the authorities overlap: the other continues what is begun
            await waiting.wait(lambda: has_bundle_length(rotating, 2), describe="a bundle of both authorities")
            await first.stop()
            await waiting.wait(
                lambda: has_bundle_length(rotating, 1), seconds=60, describe="the old authority to be dropped"
            )
        renewed = await waiting.wait(lambda: get_single_authority(rotating), describe="the servers' bundle to follow")
        yield Rotated(creating, issued, renewed, webhook, second)


async def is_injected(plane, namespace) -> bool:
    return load.is_injected(await plane.api.create(load.POD, namespace=namespace, dry_run=True))


async def test_28_every_request_succeeds_while_certificate_and_ca_rotate(plane, namespace, rotating, rotated):
    creating, issued, renewed = rotated.load, rotated.issued, rotated.renewed
    assert set(issued) == {"tls.crt", "tls.key", "ca.crt"}, "a server has no key but its own"
    assert (creating.failures, creating.lost, creating.uninjected) == ([], 0, 0)
    assert creating.created > 100
    assert renewed["tls.crt"] != issued["tls.crt"]
    assert set(pki.split_bundle(renewed["ca.crt"])).isdisjoint(pki.split_bundle(issued["ca.crt"]))
    assert await rotating.read_bundles() == {renewed["ca.crt"]}
    assert await rotating.read_bundles("ValidatingWebhookConfiguration") == {renewed["ca.crt"]}
    presented = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", rotated.webhook.port))
    assert pki.split_bundle(presented.encode()) == pki.split_bundle(renewed["tls.crt"])

    await overwrite(plane)
    began = time.monotonic()
    await waiting.wait(lambda: has_same_authority(rotating, renewed["ca.crt"]), describe="the caBundle to be put back")
    back = time.monotonic() - began
    assert back < 5
    assert await waiting.wait(lambda: is_injected(plane, namespace), describe="a pod after that")


async def test_53_a_second_rotator_completes_the_rotation_of_a_stopped_one(rotating, rotated):
    steps = rotated.other.output().count('"message": "step done"')
    assert steps > 0, "the second rotator has ended it"
    status, exposition = await rotating.read_ops(rotated.other, "/metrics")
    assert status == 200
    assert 'railwright_certs_seconds_left{certificate="webhook"}' in exposition
    assert (await rotating.read_ops(rotated.other, "/readyz"))[0] == 200
    lost = await rotating.wait_issued("railwright-extender-tls")
    made = await rotating.recreate_secret("railwright-extender-tls")
    assert made["tls.crt"] != lost["tls.crt"]
    assert made["ca.crt"] == lost["ca.crt"], "of the same authority"


async def has_bundle_length(rotating, count) -> bool:
    bundles = await rotating.read_bundles()
    assert {len(pki.split_bundle(bundle)) for bundle in bundles} == {count}
    return True


async def get_single_authority(rotating) -> dict[str, bytes]:
    held = await rotating.wait_issued()
    return held if len(pki.split_bundle(held["ca.crt"])) == 1 else {}


async def has_same_authority(rotating, pem) -> bool:
    return await rotating.read_bundles() == {pem}


async def begin(plane) -> None:
    """Start a renewal of the CA as `certs rotate --renew-ca` does; the rotators continue it."""
    client = await clients.connect(str(plane.kubeconfig))
    turning = installation.Rotator(
        client,
        "railwright-system",
        (),
        schedules.OVERLAP,
    )
    try:
        done = await turning.make_step(renew_ca=True)
    finally:
        await client.close()
    assert isinstance(done, machine.Step)
    assert done.action is machine.Action.PREPARE


async def overwrite(plane) -> None:
    """Overwrite the bundle, as an upgrade of a chart with another bundle does."""
    other = base64.b64encode(plane.certificates.authority.certificate_pem).decode()
    change = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": other}]
    await plane.api.patch("MutatingWebhookConfiguration", rotation.NAME, change)
