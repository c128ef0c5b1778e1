"""Does the work of an installation's pods on a control plane without containers.

The servers run as processes under the accounts, names and namespace of the installation. The API server calls the
webhook by URL, because it has no route to a Service.
"""

import base64
import pathlib
import sys

from plane import plane, ports, processes, rotation, servers, waiting

ROOT = pathlib.Path(__file__).resolve().parents[3]
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
    ) -> None:
        self.plane, self.folder, self.namespace, self.name = running, folder, namespace, name
        self.environment = {"RAILWRIGHT_NAMESPACE": namespace, "RAILWRIGHT_INSTALLATION": name}
        self._rotator: processes.Process | None = None
        self._servers: list[servers.Server] = []

    async def start(self) -> None:
        """Start everything once the installation's objects exist. Returns when they answer and the API server calls."""
        for kind in ("Deployment", "Service"):
            await self._exists(kind, f"{self.name}-webhook", self.namespace)
        await self._exists("ConfigMap", f"{self.name}-policy", self.namespace)
        for kind in KINDS:
            await self._exists(kind, self.name)
        self._rotate()
        await self._serve_webhook()
        place = {"POD_NAME": "extender-0", "POD_IP": "10.96.0.78", "POD_NAMESPACE": self.namespace}
        listen = f"--listen=127.0.0.1:{ports.free()}"
        options = ("--plain-http", "--leader-elect", "--drain-seconds=0.2", listen, self._account("extender"))
        extender = await self.plane.serve("extender", *options, **place, **self.environment)
        self._servers.append(extender)
        await extender.ready()

    async def stop(self) -> None:
        """End every process."""
        for server in reversed(self._servers):
            await server.stop()
        if self._rotator is not None:
            await self._rotator.stop()

    def _rotate(self) -> None:
        command = [sys.executable, "-m", "railwright.cli", "certs", "rotate", "--watch", "--ops-listen=127.0.0.1:0"]
        command += ["--identity=certs-0", self._account("certs"), *rotation.SHORT]
        self._rotator = processes.Process(f"certs-{self.name}", command, logs=self.plane.logs, cwd=ROOT)
        self._rotator.start({"PYTHONUNBUFFERED": "1", **self.environment})

    async def _serve_webhook(self) -> None:
        async def read_certificate() -> dict[str, str]:
            data = (await self.plane.api.get("Secret", f"{self.name}-webhook-tls", self.namespace)).get("data") or {}
            return data if data.get("tls.crt") else {}

        data = await waiting.wait(read_certificate, describe="the webhook's certificate")
        for part in ("tls.crt", "tls.key"):
            (self.folder / part).write_bytes(base64.b64decode(data[part]))
        pair = (f"--tls-cert={self.folder / 'tls.crt'}", f"--tls-key={self.folder / 'tls.key'}")
        server = await self.plane.serve(
            "webhook", *pair, self._account("webhook"), "--drain-seconds=0.2", **self.environment
        )
        self._servers.append(server)
        await server.ready()
        for kind in KINDS:
            hooks = (await self.plane.api.get(kind, self.name))["webhooks"]
            moved = []
            for index, hook in enumerate(hooks):
                url = f"https://127.0.0.1:{server.port}{hook['clientConfig']['service']['path']}"
                moved.append({"op": "remove", "path": f"/webhooks/{index}/clientConfig/service"})
                moved.append({"op": "add", "path": f"/webhooks/{index}/clientConfig/url", "value": url})
            await self.plane.api.patch(kind, self.name, moved)

    async def _exists(self, kind: str, name: str, namespace: str | None = None) -> None:
        await waiting.wait(
            lambda: self.plane.api.get_or_none(kind, name, namespace), seconds=60, describe=f"{kind} {name} to exist"
        )

    def _account(self, component: str) -> str:
        user = f"system:serviceaccount:{self.namespace}:{self.name}-{component}"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated")
        path = self.plane.certificates.kubeconfig(f"{self.name}-{component}", self.plane.parts.server, user, groups)
        return f"--kubeconfig={path}"
