"""An API server with the objects of a `crowds.Crowd`, which can expire its watches.

`python crowd_server.py NODES PODS` prints `listening on HOST:PORT` on standard error. Beside lists and watches:
POST /bench/expire?changed=N   changes N pods in silence and ends all watches with 410 Gone, in the stream
GET  /bench/state              {"opened": watches so far, "open": watches now}
"""

import asyncio
import itertools
import sys

import api_server
import crowds
from aiohttp import web
from api_server import PODS

_STRIDE = 7919  # a prime: changes are spread over the list
_GONE = (
    b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}}\n'
)


class CrowdServer(api_server.ApiServer):
    """The lists by path, the watchers of pods, and the version of the newest write."""

    version = 1000

    def __init__(self, crowd: crowds.Crowd) -> None:
        super().__init__(
            {
                PODS: crowd.pods,
                "/api/v1/nodes": crowd.nodes,
                "/api/v1/namespaces": crowd.namespaces,
                "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions": crowd.networks,
                "/apis/scheduling.volcano.sh/v1beta1/podgroups": crowd.groups,
            }
        )
        self._pods = self.lists[PODS]
        self._turns = itertools.count(0, _STRIDE)

    async def get(self, request: web.Request) -> web.StreamResponse:
        """Return the state, a page of a list, or a watch."""
        if request.path == "/bench/state":
            now = sum(map(len, self.watchers.values()))
            return web.json_response({"opened": self.opened, "open": now})
        return await super().get(request)

    async def post(self, request: web.Request) -> web.Response:
        """Answer requests of the bench. Accept any other object without storing it, such as Events."""
        await request.read()
        if request.path == "/bench/expire":
            for _ in range(int(request.query["changed"])):
                self._change_pod()
            for watcher, ended in [item for watchers in self.watchers.values() for item in watchers.items()]:
                await watcher.write(_GONE)
                ended.set()
        return web.Response(body=b"{}", content_type="application/json")

    def _change_pod(self) -> None:
        number = next(self._turns) % len(self._pods)
        self.version += 1
        self._pods[number] = crowds.set_version(self._pods[number], self.version)


async def main() -> None:
    """Serve until ended."""
    server = CrowdServer(crowds.Crowd(crowds.Size(*map(int, sys.argv[1:]))))
    await server.serve()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
