"""The control plane of one test run: starts its programs in order, and stops them."""

import asyncio
import contextlib
import pathlib
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Sequence

import aiohttp
import yaml

from plane import (
    api,
    binaries,
    components,
    conditions,
    controllers,
    credentials,
    processes,
    registration,
    schedulers,
    servers,
    volcano,
    waiting,
)

# After the API server: who has to be healthy before whom. Each row starts together.
_ROWS = (
    ("kube-controller-manager", "kwok", "kube-scheduler", "vc-webhook-manager"),
    ("vc-scheduler",),
    ("vc-controller-manager",),
)
_WORKLOADS = (
    "batch.volcano.sh/v1alpha1/Job",
    "apps/v1/Deployment",
    "apps/v1/StatefulSet",
    "apps/v1/ReplicaSet",
    "batch/v1/Job",
)


class Plane:
    """A running control plane. Made by `run`.

    A subclass can run it in another network namespace: `rows` are its programs after the API server, `enter` precedes
    each command line, and `make_components` and `make_connector` are to be overridden. One with `gates` and `apis` has
    these feature gates and API versions of Kubernetes switched on.
    """

    rows: Sequence[Sequence[str]] = _ROWS
    gates: Sequence[str] = ()
    apis: Sequence[str] = ()
    enter: Sequence[str] = ()

    def __init__(self, ready: binaries.Binaries, folder: pathlib.Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True)
        self.certificates = credentials.Credentials(folder / "pki")
        self.parts = self.make_components(ready)
        self.processes: dict[str, processes.Process] = {}
        self.servers: list[servers.Server] = []
        self.without_roles: list[tuple[str, str]] = []  # from when to when a test had our roles taken away
        self.kubectl_program = ready["kubectl"]
        self._ready = ready
        self._counts: dict[str, int] = {}

    def make_components(self, ready: binaries.Binaries) -> components.Components:
        """Return the ports, files and command lines of this plane's programs."""
        return components.Components(ready, self.certificates, self.folder, gates=self.gates, apis=self.apis)

    def make_connector(self, tls: ssl.SSLContext) -> aiohttp.BaseConnector:
        """Return the connector of a session with the plane's programs."""
        return aiohttp.TCPConnector(ssl=tls, limit=0)

    async def start(self) -> None:
        """Start all programs, and wait until they are healthy."""
        self.session = self._session(anonymous=False)
        self.strangers = self._session(anonymous=True)
        self.api = api.Api(self.session, self.parts.server)
        self.schedulers = schedulers.Schedulers(self.parts, self.processes, self.session)
        self.kubeconfig = self.certificates.kubeconfig("admin", self.parts.server, "admin", ("system:masters",))
        self.controllers = controllers.Controllers(
            self.api, self.parts, self.processes, self.session, self.logs, enter=self.enter
        )
        self.schedulers.prepare()
        await self._launch("etcd")
        await self._launch("kube-apiserver")
        await asyncio.gather(self._install(), *(self._launch(name) for name in self.rows[0]))
        for row in self.rows[1:]:
            await asyncio.gather(*(self._launch(name) for name in row))
        if "vc-controller-manager" in self.processes:
            # Volcano's webhook takes jobs for it then: its controller sets the state after the creation
            await conditions.wait_object(self.api, "Queue", "default", status={"state": "Open"})

    async def stop(self) -> None:
        """End every program, schedulers first and etcd last, and free the disk; logs stay."""
        for server in self.servers:
            await server.stop()
        everything = list(self.processes.values())
        last = [process for process in everything if process.name in ("kube-apiserver", "etcd")]
        await asyncio.gather(*(process.stop() for process in everything if process not in last))
        await asyncio.gather(self.session.close(), self.strangers.close())
        for process in reversed(last):
            await process.kill()  # nothing of theirs is kept; an orderly end takes the API server ten seconds
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)

    async def kubectl(self, *arguments: str, stdin: str = "", check: bool = True, seconds: float = 60) -> str:
        """Run kubectl as admin and return its output. Raises AssertionError with its error message."""
        options = (f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.folder / 'kubectl-cache'}")
        command = (*self.enter, self.kubectl_program, *options, *arguments)
        code, out, err = await processes.run(*command, stdin=stdin, seconds=seconds)
        assert code == 0 or not check, f"kubectl {' '.join(arguments)}: exit {code}\n{err}{out}"
        return out

    async def apply(self, manifests: str) -> list[api.Object]:
        """Create every object of a YAML text, in order."""
        documents = [document for document in yaml.safe_load_all(manifests) if document]
        return [await self.api.create(document) for document in documents]

    async def serve(self, module: str, *arguments: str, **environment: str) -> servers.Server:
        """Start `python -m webhook` or `-m extender` with these options; it is ended with the run at the latest."""
        self._counts[module] = self._counts.get(module, 0) + 1
        process = servers.build_process(f"{module}-{self._counts[module]}", module, arguments, self.logs)
        server = servers.Server(process, self.session)
        self.servers.append(server)
        return await server.start(**environment)

    async def register_webhook(self, port: int, *, namespaces: Sequence[str]) -> None:
        """Register our webhook on `port` for these namespaces, and wait until the API server calls it."""
        authority = self.certificates.authority.certificate_pem
        await registration.register(self.api, "railwright-test", port, authority, namespaces)

    async def unregister_webhook(self, *, namespaces: Sequence[str]) -> None:
        """Unregister the webhook; return when the API server no longer calls it."""
        await registration.unregister(self.api, "railwright-test", namespaces)

    async def make_namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        """Create a namespace in which pods can be created at once."""
        metadata = {"name": name, "labels": labels or {}}
        await self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        await waiting.wait(
            lambda: self.api.get_or_none("ServiceAccount", "default", name),
            describe=f"the default service account of namespace {name}",
        )

    async def remove_namespace(self, name: str, *, whole: bool = False) -> None:
        """Delete a namespace and wait until its pods are deleted, or all of it."""
        await self.remove_pods(name)
        await self.api.delete("Namespace", name)
        if whole:
            await conditions.wait_gone(self.api, "Namespace", name)

    async def remove_pods(self, name: str) -> None:
        """Delete the workloads and pods of a namespace, and wait until the pods are deleted.

        Workloads are deleted again in each turn, because a controller with an old cache may create one again.
        """

        async def is_empty() -> bool:
            for kind in (*self.controllers.kinds, *_WORKLOADS):
                await self.api.delete_all(kind, name)
            pods = await self.api.list("Pod", name)
            if pods:
                await self.api.delete_all("Pod", name, grace=0)
            assert not pods, f"pods {[pod['metadata']['name'] for pod in pods]}"
            return True

        await waiting.wait(is_empty, describe=f"the pods of namespace {name} to be gone")

    def _session(self, *, anonymous: bool) -> aiohttp.ClientSession:
        connector = self.make_connector(self.certificates.context(anonymous=anonymous))
        return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60))

    async def _launch(self, name: str) -> None:
        process = processes.Process(name, [*self.enter, *self.parts.command(name)], logs=self.logs)
        self.processes[name] = process.start(components.ENVIRONMENT)
        health = self.parts.health(name)
        session = self.strangers if health.anonymous else self.session
        await schedulers.wait_healthy(session, health, process, seconds=180)  # an error here is one of every test

    async def _install(self) -> None:
        authority = self.certificates.authority.certificate_pem
        await volcano.install(
            self.api, self._ready.crds, port=self.parts.port["vc-webhook-manager"], authority=authority
        )
        for document in yaml.safe_load_all((components.DATA / "network-attachment-definition-crd.yaml").read_text()):
            await self.api.create(document)


@contextlib.asynccontextmanager
async def run(folder: pathlib.Path, kind: type[Plane] = Plane) -> AsyncIterator[Plane]:
    """Run a control plane in `folder` for the length of a `with` block."""
    started = time.monotonic()
    plane = kind(binaries.locate(), folder)
    try:
        await plane.start()
        (plane.logs / "started.txt").write_text(f"{time.monotonic() - started:.1f} s\n")
        yield plane
    finally:
        await plane.stop()
