"""Does the work of an installation's pods on a control plane without containers.

The servers run as processes under the accounts, names and namespace of the installation. The API server calls the
webhook by URL, because it has no route to a Service.
"""

import base64
import pathlib

from plane import commands, plane, processes, rotation, servers, site, waiting

KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class StandIns:
    """Rotator, webhook and extender of one installation."""

    def __init__(
        self,
        running: plane.Plane,
        folder: pathlib.Path,
        *,
        namespace: str = "railwright-system",
        name: str = "railwright",
        has_extender: bool = True,
    ) -> None:
        self.plane, self.folder, self.namespace, self.name = running, folder, namespace, name
        self.has_extender = has_extender
        self.environment = {"RAILWRIGHT_NAMESPACE": namespace, "RAILWRIGHT_INSTALLATION": name}
        self._rotator: processes.Process | None = None
        self._servers: list[servers.Server] = []

    async def start(self) -> None:
        """Start all programs once the installation's objects exist; return when the API server calls the webhook."""
        for kind in ("Deployment", "Service"):
            await self._wait_exists(kind, f"{self.name}-webhook", self.namespace)
        await self._wait_exists("ConfigMap", f"{self.name}-policy", self.namespace)
        for kind in KINDS:
            await self._wait_exists(kind, self.name)
        self._start_rotator()
        await self.serve_webhook()
        if self.has_extender:
            await (await self.serve_extender()).ready()

    async def stop(self) -> None:
        """End every process."""
        while self._servers:
            await self._servers.pop().stop()
        if self._rotator is not None:
            await self._rotator.stop()

    def _start_rotator(self) -> None:
        command = [*commands.RAILWRIGHT, "certs", "rotate", "--watch", "--ops-listen=127.0.0.1:0"]
        command += [self._account("certs"), *rotation.SHORT]
        self._rotator = processes.Process(f"certs-{self.name}", command, logs=self.plane.logs, cwd=site.ROOT)
        self._rotator.start({"PYTHONUNBUFFERED": "1", **self.environment})

    async def serve_webhook(self) -> servers.Server:
        """Start the webhook with its Secret's certificate, and have the API server call it by URL. Return it."""

        async def read_certificate() -> dict[str, str]:
            data = (await self.plane.api.get("Secret", f"{self.name}-webhook-tls", self.namespace)).get("data") or {}
            return data if data.get("tls.crt") else {}

        data = await waiting.wait(read_certificate, describe="the webhook's certificate")
        for part in ("tls.crt", "tls.key"):
            (self.folder / part).write_bytes(base64.b64decode(data[part]))
        pair = (f"--tls-cert={self.folder / 'tls.crt'}", f"--tls-key={self.folder / 'tls.key'}")
        server = await self._serve("webhook", *pair)
        await server.ready()
        for kind in KINDS:
            moved = []
            for index, hook in enumerate((await self.plane.api.get(kind, self.name))["webhooks"]):
                url = f"https://127.0.0.1:{server.port}{hook['clientConfig']['service']['path']}"
                moved.append({"op": "remove", "path": f"/webhooks/{index}/clientConfig/service"})
                moved.append({"op": "add", "path": f"/webhooks/{index}/clientConfig/url", "value": url})
            await self.plane.api.patch(kind, self.name, moved)
        return server

    async def serve_extender(self) -> servers.Server:
        """Start an extender. It may not be ready yet."""
        return await self._serve("extender", "--plain-http")

    async def _serve(self, module: str, *options: str) -> servers.Server:
        account = self._account(module)
        server = await self.plane.serve(module, *options, account, "--drain-seconds=0.2", **self.environment)
        self._servers.append(server)
        return server

    async def _wait_exists(self, kind: str, name: str, namespace: str | None = None) -> None:
        await waiting.wait(
            lambda: self.plane.api.get_or_none(kind, name, namespace), seconds=60, describe=f"{kind} {name} to exist"
        )

    def _account(self, component: str) -> str:
        return site.act_as(self.plane, component, namespace=self.namespace, name=self.name)
