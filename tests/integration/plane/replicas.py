"""Two extenders that elect their leader, the Service that selects no pods, and a proxy in kube-proxy's place.

Owns their addresses: each replica has an IP of its own in the API server's eyes, and a port on loopback.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import yaml

from plane import plane, ports, reverse_proxy, servers, site, waiting

SERVICE, SLICE = "railwright-extender", "railwright-extender-ipv4"
_QUESTION = {
    "Pod": {"metadata": {"name": "asked", "namespace": "prod", "uid": "u"}, "spec": {"containers": []}},
    "NodeNames": [],
}


class Replicas:
    """The replicas of one Deployment, and the proxy that follows the Service's EndpointSlice."""

    def __init__(self, installation: site.Site) -> None:
        self.plane, self.site, self.proxy = installation.plane, installation, installation.proxy
        self.running: dict[int, servers.Server] = {}  # by port
        self._started = 0

    async def start(self) -> servers.Server:
        """Start one more replica, and wait until it is ready."""
        self._started += 1
        port = ports.free()
        place = {"POD_NAME": f"extender-{self._started}", "POD_IP": f"10.96.0.{self._started}"}
        server = await self.plane.serve(
            "extender",
            *("--plain-http", "--leader-elect", "--lease-seconds=3", "--drain-seconds=1", f"--listen=127.0.0.1:{port}"),
            self.site.kubeconfig("extender"),
            **place,
            POD_NAMESPACE=site.NAMESPACE,
        )
        self.running[port] = server
        return await server.ready()

    async def leader(self) -> servers.Server:
        """Wait until the proxy leads to a replica that answers; return it."""
        await waiting.wait(self._answered, describe="an extender that answers through the proxy")
        assert self.proxy.backend is not None
        return self.running[self.proxy.backend]

    async def taken_over(self, from_: servers.Server, since: float) -> float:
        """Return the seconds from `since` until another replica answers through the proxy."""

        async def another() -> bool:
            return self.proxy.backend not in (None, from_.port) and await self._answered()

        await waiting.wait(another, seconds=20, describe="another leader")
        return time.monotonic() - since

    async def _answered(self) -> bool:
        try:
            async with self.plane.session.post(f"{self.proxy.url}/scheduler/filter", json=_QUESTION) as answer:
                return answer.status == 200
        except aiohttp.ClientError:  # hung up on by the proxy
            return False


@contextlib.asynccontextmanager
async def pair(on: plane.Plane, policy: str) -> AsyncIterator[Replicas]:
    """Yield the installation with two replicas, both ready; all taken away again."""
    async with site.running(on) as installation:
        await installation.policy(policy)
        await on.api.create(_service())
        made = Replicas(installation)
        following = asyncio.create_task(_follow(on, installation.proxy))
        try:
            await asyncio.gather(made.start(), made.start())
            await made.leader()
            yield made
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await on.schedulers.reset()  # before their extenders end
            for server in made.running.values():
                await server.stop()
            for kind in ("Service", "Lease"):
                await on.api.delete(kind, SERVICE, site.NAMESPACE)


def _service() -> dict[str, Any]:
    documents = yaml.safe_load_all((site.BASE / "extender.yaml").read_text())
    [service] = [document for document in documents if document["kind"] == "Service"]
    made: dict[str, Any] = service
    return made


async def _follow(on: plane.Plane, opened: reverse_proxy.ReverseProxy) -> None:
    """Forward connections as kube-proxy does: to the endpoints of the Service's EndpointSlices."""
    labels = f"kubernetes.io/service-name={SERVICE}"
    async for kind, endpoint_slice in on.api.watch("EndpointSlice", site.NAMESPACE, labels=labels):
        opened.backend = None if kind == "DELETED" else _port(endpoint_slice)


def _port(endpoint_slice: Mapping[str, Any]) -> int | None:
    endpoints, open_ports = endpoint_slice.get("endpoints") or (), endpoint_slice.get("ports") or ()
    return int(open_ports[0]["port"]) if endpoints and open_ports else None
