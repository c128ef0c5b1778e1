"""Faults of an upgrade: the chart goes forward and back while pods are created."""

import asyncio
import base64
import contextlib
import json
import pathlib
import ssl
import sys

import pytest_asyncio
from plane import audit_log, load, releases, rotation, spread, waiting
from plane import site as sites

LABEL = "railwright.io/fabric"
# an API server keeps up to 25 connections: within the drain each must have had a request, to be closed with its answer
FIRST = "--set=webhook.extraArgs={--drain-seconds=4}"
NEXT = ("--set=webhook.excludedNamespaces={infra}", "--set=webhook.extraArgs={--drain-seconds=5}")


class Release:
    """The chart on the plane, and the replicas of its webhook, started with the options of its Deployment."""

    def __init__(self, plane, helm, behind, files: pathlib.Path) -> None:
        self.plane, self.helm, self.behind, self.files = plane, helm, behind, files

    async def hooks(self):
        return (await self.plane.api.get("MutatingWebhookConfiguration", "railwright"))["webhooks"]

    async def launch(self):
        """Start a replica with the current options of the Deployment and these. It may not be ready."""
        deployment = await self.plane.api.get("Deployment", "railwright-webhook", sites.NAMESPACE)
        module, *arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        arguments = [argument.replace("=/tls/", f"={self.files}/") for argument in arguments]
        account = sites.Site(self.plane).kubeconfig("webhook")
        server = await self.plane.serve(module, *arguments, account)
        self.behind.members.append(server)
        return server, arguments

    async def start(self):
        """Start a replica, wait until it is ready, and return its options."""
        server, arguments = await self.launch()
        await server.ready()
        await waiting.wait(lambda: server in self.behind.ready, describe="the new replica to be among the ready ones")
        return arguments

    async def roll(self):
        """Replace the replicas as a rolling update does: add one, then remove an old one, until all are new."""
        for server in list(self.behind.members):
            arguments = await self.start()
            assert await server.stop() == 0
            self.behind.members.remove(server)
        return arguments

    async def handshake(self) -> None:
        """Connect with the current caBundle, as an API server does. Raises if the certificate does not match."""
        bundles = {hook["clientConfig"].get("caBundle", "") for hook in await self.hooks()}
        [bundle] = bundles
        context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
        _, writer = await asyncio.open_connection("127.0.0.1", self.behind.port, ssl=context)
        writer.close()

    @contextlib.asynccontextmanager
    async def handshakes(self):
        """Make TLS handshakes one after the other during a `with` block; yield the failures."""
        bad = []

        async def connect_repeatedly() -> None:
            while True:
                try:
                    await self.handshake()
                except (ValueError, OSError, ssl.SSLError) as error:
                    bad.append(repr(error))
                await asyncio.sleep(0.05)

        running = asyncio.create_task(connect_repeatedly())
        try:
            yield bad
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest_asyncio.fixture(loop_scope="session")
async def release(plane, namespace, tmp_path):
    """Yield an installation with certificates, two replicas, and the webhooks registered for the namespace."""
    site = sites.Site(plane)
    await site.prepare()  # the namespace
    await releases.clear(plane.api)
    (tmp_path / "policy.yaml").write_text(load.POLICY)
    async with spread.Spread(plane.session) as behind:
        helm = releases.Helm(tmp_path / "helm", plane.kubeconfig)
        helm.options = (
            releases.WHOLE,
            f"--post-renderer={sys.executable}",
            *(f"--post-renderer-args={argument}" for argument in (releases.WEBHOOK_URLS, behind.port, namespace)),
        )
        rotator = rotation.Rotation(plane, site)
        await helm.install(FIRST, f"--set-file=policy.document={tmp_path / 'policy.yaml'}")
        try:
            await rotator.start()
            await rotator.wait_issued()
            async with rotator.kubelet("railwright-webhook-tls", tmp_path / "tls"):
                made = Release(plane, helm, behind, tmp_path / "tls")
                await asyncio.gather(made.start(), made.start())

                async def is_in_force():
                    await made.handshake()
                    return load.is_injected(await plane.api.create(load.POD, namespace=namespace, dry_run=True))

                await waiting.wait(is_in_force, describe="pods to be injected")
                yield made
        finally:
            await asyncio.gather(*(member.stop() for member in (*behind.members, *rotator.replicas)))
            await helm("uninstall", releases.RELEASE)
            await releases.clear(plane.api)


async def test_62_every_pod_is_injected_while_the_chart_is_upgraded_and_rolled_back(plane, release, namespace):
    before = json.dumps(await release.hooks(), sort_keys=True)
    async with release.handshakes() as bad, load.Load(plane.api, namespace) as running:
        await release.helm.upgrade("--reuse-values", *NEXT)
        assert all("infra" in json.dumps(hook["namespaceSelector"]) for hook in await release.hooks())
        assert "--drain-seconds=5" in await release.roll()
        await release.helm("rollback", releases.RELEASE, "1")
        assert json.dumps(await release.hooks(), sort_keys=True) == before
        assert "--drain-seconds=4" in await release.roll()
        done = running.created
        await waiting.wait(lambda: running.created > done + 100, describe="100 creates by the release of before")
    assert (running.failures, running.lost, running.uninjected) == ([], 0, 0)
    assert not bad, bad[:3]


async def test_a_replica_of_a_new_version_is_not_ready_until_its_role_is_applied(plane, release, namespace):
    role = await plane.api.get("Role", "railwright-webhook", sites.NAMESPACE)
    former = [rule for rule in role["rules"] if rule["resources"] != ["configmaps"]]
    assert len(former) < len(role["rules"])
    began = audit_log.format_now()
    await plane.api.replace({**role, "rules": former})  # as in a version that did not watch this kind
    server, _ = await release.launch()
    await server.process.wait_line("you may not list configmaps -n railwright-system")
    await asyncio.sleep(1)  # several probes
    assert server not in release.behind.ready
    assert len(release.behind.ready) == 2
    assert load.is_injected(await plane.api.create(load.POD, namespace=namespace, dry_run=True))
    await release.helm.upgrade("--reuse-values", *NEXT)
    restored = await plane.api.get("Role", "railwright-webhook", sites.NAMESPACE)
    assert restored["rules"] == role["rules"]
    await waiting.wait(
        lambda: server in release.behind.ready, seconds=60, describe="the waiting replica to be ready without a restart"
    )
    plane.without_roles.append((began, audit_log.format_now()))
