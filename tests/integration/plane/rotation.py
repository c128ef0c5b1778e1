"""Runs railwright-certs on the control plane: its manifests without the Deployment, and replicas as processes."""

import asyncio
import base64
import contextlib
import pathlib
import sys
from collections.abc import AsyncIterator

import yaml

from plane import plane, processes, registration, site, waiting

NAME = "railwright"  # of both configurations
MANIFESTS = (site.BASE / "certs.yaml", site.BASE / "extender.yaml")
SHORT = ("--overlap=8s", "--every=1s")  # servers look at their files twice a second
_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class Rotation:
    """The installation of one test. `kubelet` writes the files of a server's Secret."""

    def __init__(self, running: plane.Plane, installed: site.Site) -> None:
        self.plane = running
        self.replicas: list[processes.Process] = []
        self._account = installed.kubeconfig("certs")
        self._documents = [
            document
            for manifest in MANIFESTS
            for document in yaml.safe_load_all(manifest.read_text())
            if document and document["kind"] not in ("Deployment", "PodDisruptionBudget")
        ]

    async def prepare(self) -> None:
        """Delete the objects of another test, then apply account, roles, empty Secrets and the extender's Service."""
        for document in self._documents:
            await self._delete(document)
            await self.plane.api.create(document)

    async def configure(self, port: int, *namespaces: str) -> None:
        """Create both configurations without a caBundle, with the URL of `port`."""
        for kind in _KINDS:
            document = registration.build_webhook_configuration(NAME, port, b"", namespaces)
            hooks = document["webhooks"] if kind == _KINDS[0] else _validating(document["webhooks"][:1])
            for hook in hooks:
                hook["clientConfig"].pop("caBundle", None)  # entries may share one
            await self.plane.api.create({**document, "kind": kind, "webhooks": hooks})

    async def start(self, *options: str) -> processes.Process:
        """Start one replica, as its service account, and return it."""
        number = len(self.replicas)
        command = [sys.executable, "-m", "railwright.cli", "certs", "rotate", "--watch", "--ops-listen=127.0.0.1:0"]
        command += [self._account, *SHORT, *options]
        replica = processes.Process(f"certs-{number}", command, logs=self.plane.logs, cwd=site.ROOT)
        replica.start({"PYTHONUNBUFFERED": "1"})
        self.replicas.append(replica)
        await replica.wait_line(r"ops listening on (\S+):(\d+)\n")
        return replica

    async def read_ops(self, replica: processes.Process, path: str) -> tuple[int, str]:
        """Return the status and text that a replica answers on its port for probes and metrics."""
        port = (await replica.wait_line(r"ops listening on (\S+):(\d+)\n")).group(2)
        async with self.plane.session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, await answer.text()

    async def read_secret(self, name: str) -> dict[str, bytes]:
        """Return the contents of a Secret of the installation."""
        secret = await self.plane.api.get("Secret", name, site.NAMESPACE)
        return {key: base64.b64decode(value) for key, value in secret.get("data", {}).items()}

    async def read_bundles(self, kind: str = _KINDS[0]) -> set[bytes]:
        """Return the caBundles of a configuration."""
        configuration = await self.plane.api.get(kind, NAME)
        return {base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in configuration["webhooks"]}

    async def remove_bundles(self) -> None:
        """Remove the caBundles of the mutating configuration, as an apply of its manifest can."""
        configuration = await self.plane.api.get(_KINDS[0], NAME)
        for hook in configuration["webhooks"]:
            hook["clientConfig"].pop("caBundle", None)
        await self.plane.api.replace(configuration)

    async def wait_for_bundle(self) -> bytes:
        """Return the caBundle of the mutating configuration once all its webhooks have one."""

        async def find_bundle() -> bytes:
            found = await self.read_bundles()
            return next(iter(found)) if len(found) == 1 else b""

        return await waiting.wait(find_bundle, describe="a caBundle")

    async def wait_issued(self, name: str = "railwright-webhook-tls") -> dict[str, bytes]:
        """Wait until a Secret has been filled, and return its contents."""

        async def read_filled() -> dict[str, bytes]:
            held = await self.read_secret(name)
            return held if held.get("tls.crt") else {}

        return await waiting.wait(read_filled, describe=f"a certificate in Secret {name}")

    async def recreate_secret(self, name: str) -> dict[str, bytes]:
        """Delete a Secret. Return its content once it exists again."""
        await self.plane.api.delete("Secret", name, site.NAMESPACE)

        async def read_new() -> dict[str, bytes]:
            secret = await self.plane.api.get_or_none("Secret", name, site.NAMESPACE)
            held = await self.read_secret(name) if secret else {}
            return held if held.get("tls.crt") else {}

        return await waiting.wait(read_new, describe=f"Secret {name} to be made again")

    @contextlib.asynccontextmanager
    async def kubelet(self, name: str, folder: pathlib.Path) -> AsyncIterator[None]:
        """Update `folder` as kubelet does for a mounted Secret: all files at once, by a new target of a link."""
        written: dict[str, bytes] = {}
        swaps = 0

        async def update() -> None:
            nonlocal written, swaps
            held = await self.read_secret(name)
            if held == written:
                return
            swaps += 1
            place = folder / f"..{swaps}"
            place.mkdir(parents=True)
            for key, value in held.items():
                (place / key).write_bytes(value)
                if not (folder / key).is_symlink():
                    (folder / key).symlink_to(f"..data/{key}")
            (folder / "..next").symlink_to(place.name)
            (folder / "..next").replace(folder / "..data")
            written = held

        async def update_continuously() -> None:
            while True:
                await update()
                await asyncio.sleep(0.2)

        await update()
        running = asyncio.create_task(update_continuously())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def remove(self) -> None:
        """Stop every replica and delete the applied objects."""
        await asyncio.gather(*(replica.stop() for replica in self.replicas))
        for kind in _KINDS:
            await self.plane.api.delete(kind, NAME)
        for document in self._documents:
            if document["kind"] in ("Secret", "Service"):
                await self._delete(document)

    async def _delete(self, document: dict) -> None:
        metadata = document["metadata"]
        kind = f"{document['apiVersion']}/{document['kind']}"
        await self.plane.api.delete(kind, metadata["name"], metadata.get("namespace"))


def _validating(hooks: list[dict]) -> list[dict]:
    """Return the entries as validating ones for a kind that does not exist."""
    rules = [{"apiGroups": ["none.invalid"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}]
    keys = ("name", "clientConfig", "admissionReviewVersions", "sideEffects")
    return [
        {**{key: hook[key] for key in keys}, "clientConfig": dict(hook["clientConfig"]), "rules": rules}
        for hook in hooks
    ]
