"""A large cluster's API server as a process: `api_world.py PODS NODES`; prints its port.

POST /control/gone ends every watch with 410, so that all is listed again, a tenth of the pods changed; GET
/control/pages tells how many pages were served. Pods are made as they are asked for: 100,000 of them are 600 MB.
"""

import asyncio
import json
import sys

import api_stub
from aiohttp import web

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
RAILS = [f"nvidia.com/mlx5_{index}" for index in range(8)]


def node(index: int) -> dict:
    have = {"cpu": "128", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8", **dict.fromkeys(RAILS, "1")}
    labels = {f"label-{number}.example.com/of-a-node": "some-value" for number in range(20)}
    conditions = [{"type": f"C{number}", "status": "False", "message": "m" * 60} for number in range(8)]
    status = {"allocatable": have, "capacity": have, "conditions": [*conditions, {"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": f"node-{index}", "uid": f"n-{index}", "labels": labels}, "status": status}


def template() -> bytes:
    """Return a pod of about 6 kB, its number as %d."""
    env = [{"name": f"SETTING_{number}", "value": "a value of some length"} for number in range(50)]
    limits = {"cpu": "8", "memory": "64Gi"}
    container = {"name": "main", "image": "registry/image:1", "env": env, "resources": {"limits": limits}}
    fields = [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:x" * 20: {}}}} for _ in range(10)]
    metadata = {
        "name": "pod-NUMBER",
        "namespace": "space-1",
        "uid": "uid-NUMBER",
        "resourceVersion": "VERSION",
        "labels": {f"label-{number}": "some-value" for number in range(10)},
        "managedFields": fields,
    }
    conditions = [{"type": f"C{number}", "status": "True"} for number in range(5)]
    pod = {
        "metadata": metadata,
        "spec": {"containers": [container, container | {"name": "side"}], "nodeName": "node-NODE"},
        "status": {"phase": "Running", "conditions": conditions},
    }
    return json.dumps(pod).replace("%", "%%").encode()


class Large(api_stub.World):
    """A cluster whose pods are generated on request and not stored."""

    def __init__(self, pods: int, nodes: int) -> None:
        super().__init__()
        self.pods, self.nodes, self.text = pods, nodes, template()
        for index in range(nodes):
            self.put(NODES, node(index))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/control/gone":
            self.version += 1
            self.end_watches(last=api_stub.event("ERROR", api_stub.status(410, "too old", "Expired")))
            return web.Response()
        if request.path == "/control/pages":
            return web.json_response(self.listed)
        return await super()._answer(request)

    def _read(self, path: str, start: int, end: int) -> tuple[list[bytes], int]:
        if path != PODS:
            return super()._read(path, start, end)
        return [self._pod(index) for index in range(start, min(self.pods, end))], self.pods

    def _pod(self, index: int) -> bytes:
        version = self.version if index % 10 == 0 else 1
        made = self.text.replace(b"NUMBER", b"%d" % index).replace(b"VERSION", b"%d" % version)
        return made.replace(b"NODE", b"%d" % (index % self.nodes), 1)


async def main() -> None:
    async with Large(*map(int, sys.argv[1:3])) as world:
        print(world.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
