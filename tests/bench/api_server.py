"""An API server for benchmarks: lists a generated cluster in pages, and sends the watch events that it is given.

`python api_server.py JSON-OF-A-SHAPE` prints `listening on HOST:PORT` on standard error. POST /bench/pods with one
pod sends a MODIFIED event of the pod to all watches of pods; the pod is not stored.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

import clusters
from aiohttp import web

PODS = "/api/v1/pods"


def build_page(objects: Sequence[bytes], query: Mapping[str, str]) -> web.Response:
    """Return the page of a list that a query asks for."""
    first, limit = int(query.get("continue") or 0), int(query.get("limit") or len(objects))
    more = str(first + limit) if first + limit < len(objects) else ""
    head = json.dumps({"resourceVersion": "1", "continue": more}).encode()
    body = b'{"metadata":%b,"items":[%b]}' % (head, b",".join(objects[first : first + limit]))
    return web.Response(body=body, content_type="application/json")


class ApiServer:
    """Lists by path, and the watchers of each."""

    def __init__(self, lists: Mapping[str, Callable[[], Iterable[bytes]]]) -> None:
        self.lists = {path: list(objects()) for path, objects in lists.items()}
        self.watchers: dict[str, set[web.StreamResponse]] = {path: set() for path in self.lists}

    async def get(self, request: web.Request) -> web.StreamResponse:
        """Return a page of a list, or a watch."""
        if request.query.get("watch"):
            return await self.watch(request)
        return build_page(self.lists.get(request.path, []), request.query)

    async def post(self, request: web.Request) -> web.Response:
        """Send a pod to its watchers; any other object is taken and forgotten, as Events are."""
        body = await request.read()
        if request.path == "/bench/pods":
            for watcher in list(self.watchers[PODS]):
                await watcher.write(b'{"type":"MODIFIED","object":%b}\n' % body)
        return web.Response(body=b"{}", content_type="application/json")

    async def watch(self, request: web.Request) -> web.StreamResponse:
        """Keep a watch open until its client ends it."""
        response = web.StreamResponse()
        await response.prepare(request)
        watchers = self.watchers.setdefault(request.path, set())
        watchers.add(response)
        try:
            await asyncio.Event().wait()
        finally:
            watchers.remove(response)
        return response

    async def serve(self) -> None:
        """Listen on a port, and print it."""
        application = web.Application(client_max_size=1 << 24)
        application.router.add_get("/{path:.*}", self.get)
        application.router.add_post("/{path:.*}", self.post)
        application.router.add_patch("/{path:.*}", self.post)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"listening on 127.0.0.1:{runner.addresses[0][1]}", file=sys.stderr, flush=True)


async def main() -> None:
    """Serve until ended."""
    cluster = clusters.Cluster(clusters.Shape(**json.loads(sys.argv[1])))
    server = ApiServer(
        {
            "/api/v1/nodes": cluster.list_nodes,
            PODS: cluster.list_pods,
            "/apis/scheduling.volcano.sh/v1beta1/podgroups": cluster.list_volcano_groups,
            "/apis/scheduling.x-k8s.io/v1alpha1/podgroups": cluster.list_kube_groups,
        }
    )
    await server.serve()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
