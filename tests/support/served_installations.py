"""Serves the objects of `installations` on loopback, and rejects or delays requests for chosen sources."""

import asyncio
import contextlib
import json
import pathlib
from collections.abc import AsyncIterator

import api_stub
import installations
from aiohttp import web

from railwright.cli.checking import snapshots
from railwright.cluster import policies, resources
from railwright.fabric import names

_EMPTY = {kind.path for kind in resources.GANG_SIZES.values() if not kind.optional}  # no cluster lacks their kinds


class Installation:
    """The served objects. A test changes `trees`; `held` delays the answer for a source until its event is set."""

    def __init__(self) -> None:
        self.trees = installations.healthy()
        self.held: dict[str, asyncio.Event] = {}
        self.forbidden: set[str] = set()  # sources that the caller may not read
        self.metrics: dict[str, str] = {}  # what pods answer to the API server's proxy
        self.kubeconfig = ""
        self._sources = {
            (source.path.format(namespace=names.NAMESPACE), source.query.get("fieldSelector")): (name, source)
            for name, source in snapshots.SOURCES.items()
        }
        # for a request with another field selector, as `gangs` selects pods; the first source of a path
        self._sources_by_path = {path: source for (path, _), source in reversed(self._sources.items())}

    async def answer(self, request: web.Request) -> web.Response:
        asked = (request.path, request.query.get("fieldSelector"))
        name, source = self._sources.get(asked) or self._sources_by_path.get(request.path, ("", None))
        if request.method == "POST" and request.path.endswith("/pods"):
            return await self._answer_dry_run(request)
        if source is None and request.path in _EMPTY:
            return web.json_response({"metadata": {}, "items": []})
        if (pod := request.path.rpartition("http:")[2].partition(":8080/proxy/metrics")[0]) in self.metrics:
            return web.Response(text=self.metrics[pod])
        if source is None:
            return api_stub.refuse(404, "NotFound")
        if name in self.held:
            await self.held[name].wait()
        if name in self.forbidden:
            return api_stub.refuse(403, "Forbidden")
        trees = self.trees[name]
        if source.is_single:
            return web.json_response({"metadata": {}, **trees[0]}) if trees else api_stub.refuse(404, "NotFound")
        return web.json_response({"metadata": {}, "items": trees})

    async def _answer_dry_run(self, request: web.Request) -> web.Response:
        """Answer a dry run like the webhook."""
        pod = await request.json()
        policy = policies.read(self.trees["policy"][0]["data"][names.POLICY_KEY])
        record = {"policy": getattr(policy, "digest", ""), "fabric": pod["metadata"]["labels"][names.FABRIC]}
        pod["metadata"]["annotations"] = {names.INJECTION: json.dumps(record)}
        return web.json_response(pod)


@contextlib.asynccontextmanager
async def serve(folder: pathlib.Path) -> AsyncIterator[Installation]:
    """Serve a healthy installation; `kubeconfig` is the path of a kubeconfig for it in `folder`."""
    installation = Installation()
    async with api_stub.serve(installation.answer) as port:
        installation.kubeconfig = api_stub.kubeconfig(folder, port)
        try:
            yield installation
        finally:
            for released in installation.held.values():
                released.set()
