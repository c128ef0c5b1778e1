"""An etcd and an API server for one test, which can kill and restart them.

Nothing else runs there: no controller, no scheduler. Our servers have their accounts' names and all rights, so that the
audit log has the account of each request.
"""

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator

import aiohttp

from plane import api, audit_log, binaries, components, credentials, processes, schedulers, servers, site

_ACCOUNT = f"system:serviceaccount:{site.NAMESPACE}:"
_GROUPS = ("system:masters", f"system:serviceaccounts:{site.NAMESPACE}")
_SERVER, _ETCD = "kube-apiserver", "etcd"


class Bare:
    """A running etcd and API server. Created by `run`."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True)
        self.certificates = credentials.Credentials(folder / "pki")
        self.parts = components.Components(binaries.locate(), self.certificates, folder)
        self.servers: list[servers.Server] = []
        self._processes: dict[str, processes.Process] = {}

    async def start(self) -> None:
        """Start both programs, wait until they are healthy, and create the namespace of an installation."""
        connector = aiohttp.TCPConnector(ssl=self.certificates.context(), limit=0)
        self.session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30))
        self.api = api.Api(self.session, self.parts.server)
        await self._launch(_ETCD)
        await self.up()
        await self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": site.NAMESPACE}})

    async def up(self, *flags: str) -> None:
        """Start the API server with further flags, and wait until it is healthy."""
        await self._launch(_SERVER, *flags)

    async def down(self) -> None:
        """Kill the API server."""
        await self._processes[_SERVER].kill()

    async def serve(self, module: str, name: str, *options: str) -> servers.Server:
        """Return one of our servers, which uses plain HTTP and the account `name`."""
        process = servers.process(
            name,
            module,
            ("--plain-http", "--drain-seconds=0.2", f"--kubeconfig={self.kubeconfig(name)}", *options),
            self.logs,
        )
        self.servers.append(server := servers.Server(process, self.session))
        return await server.start()

    def kubeconfig(self, account: str) -> pathlib.Path:
        """Return a fresh kubeconfig."""
        return self.certificates.kubeconfig(account, self.parts.server, _ACCOUNT + account, _GROUPS)

    def lists(self, since: int = 0) -> dict[tuple[str, str], int]:
        """Return how often each account has listed each path successfully, from an offset of the audit log on."""
        numbers: dict[tuple[str, str], int] = {}
        for event in audit_log.read(self.parts.audit_log, since):
            if event["verb"] == "list" and event.get("responseStatus", {}).get("code") == 200:
                key = (event["user"]["username"].removeprefix(_ACCOUNT), event["requestURI"].partition("?")[0])
                numbers[key] = numbers.get(key, 0) + 1
        return numbers

    async def stop(self) -> None:
        """End everything."""
        await asyncio.gather(*(server.stop() for server in self.servers))
        for process in reversed(self._processes.values()):
            await process.kill()
        await self.session.close()

    async def _launch(self, name: str, *flags: str) -> None:
        process = processes.Process(name, [*self.parts.command(name), *flags], logs=self.logs)
        self._processes[name] = process.start()
        await schedulers.healthy(self.session, self.parts.health(name), process)


@contextlib.asynccontextmanager
async def run(folder: pathlib.Path) -> AsyncIterator[Bare]:
    """Run both for the length of a `with` block."""
    made = Bare(folder)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()
