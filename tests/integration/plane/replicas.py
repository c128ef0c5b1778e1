"""Two extenders behind the proxy, which sends a scheduler to the same one, as the Service does (ClientIP)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from plane import plane, servers, site

_NOTICED_SECONDS = 1.0  # kubelet sees that a container has ended, and the Service drops its address


class Replicas:
    """The replicas of one Deployment. The proxy sends requests to the first that runs."""

    def __init__(self, installation: site.Site) -> None:
        self.site, self.proxy = installation, installation.proxy
        self.running: list[servers.Server] = []

    @property
    def target_replica(self) -> servers.Server:
        """Return the replica to which the proxy sends the schedulers."""
        return self.running[0]

    async def start(self) -> servers.Server:
        """Start one more replica, and wait until it is ready."""
        server = await self.site.plane.serve(
            "extender", "--plain-http", "--drain-seconds=1", self.site.kubeconfig("extender")
        )
        self.running.append(await server.ready())
        self._lead()
        return server

    async def kill_target(self) -> servers.Server:
        """Kill the target replica, and return it. Connections are closed until the proxy has another target."""
        killed = self.running.pop(0)
        self.proxy.backend = None
        await killed.kill()
        asyncio.get_running_loop().call_later(_NOTICED_SECONDS, self._lead)
        return killed

    def _lead(self) -> None:
        self.proxy.backend = self.running[0].port if self.running else None


@contextlib.asynccontextmanager
async def running(on: plane.Plane, policy: str) -> AsyncIterator[Replicas]:
    """Yield an installation with two replicas, both ready; all of it is removed again."""
    async with site.running(on) as installation:
        await installation.policy(policy)
        made = Replicas(installation)
        try:
            for _ in range(2):
                await made.start()
            yield made
        finally:
            await on.schedulers.reset()  # before their extenders end
            await asyncio.gather(*(server.stop() for server in made.running))
