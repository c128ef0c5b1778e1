"""Creates fake nodes of any shape, run by kwok or by the test."""

import asyncio
import datetime as dt
import time
from collections.abc import Mapping, Sequence
from typing import Any

import devices

from plane import api, waiting

RAILS: Mapping[str, int] = {f"nvidia.com/mlx5_{rail}": 100 for rail in range(4)}  # as the seed jobs' cluster has them
_NOT_READY = "node.kubernetes.io/not-ready"
_LIST_SECONDS = 0.1  # how old a list may be. Nodes that are made together wait for one list, not each for itself
# What a controller would write in a small cluster. Without it, each node costs a further patch.
_TTL = {"node.alpha.kubernetes.io/ttl": "0"}


class Nodes:
    """Creates nodes, and deletes them at the end."""

    def __init__(self, client: api.Api) -> None:
        self._api = client
        self.names: list[str] = []
        self._slices: list[str] = []
        self._listed: asyncio.Task[dict[str, api.Object]] | None = None
        self._listed_at = 0.0

    async def make(
        self,
        name: str,
        *,
        gpus: int = 8,
        rails: Mapping[str, int] = RAILS,
        labels: Mapping[str, str] | None = None,
        cpu: str = "128",
        memory: str = "2Ti",
        taints: Sequence[Mapping[str, str]] = (),
        pods: int = 110,
        kwok: bool = True,
    ) -> None:
        """Create one node and wait until pods may go there. `rails`: resource name to allocatable devices.

        Without kwok, the test has to start its pods and end the deleted ones, as a kubelet does.
        """
        devices = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        resources = {"cpu": cpu, "memory": memory, "pods": str(pods), **devices}
        resources |= {resource: str(count) for resource, count in rails.items()}
        manifest: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": _TTL | ({"kwok.x-k8s.io/node": "fake"} if kwok else {}),
                "labels": {"kubernetes.io/hostname": name, "type": "kwok", **(labels or {})},
            },
            "spec": {"taints": [dict(taint) for taint in taints]},
            "status": {"capacity": resources, "allocatable": resources},
        }
        if not kwok:
            manifest["status"]["conditions"] = [_condition(ready=True)]
        self.names.append(name)
        uid = (await self._api.create(manifest))["metadata"]["uid"]
        await waiting.wait(lambda: self._is_ready(uid), seconds=120, describe=f"node {name} to be ready")

    async def make_with_slices(self, name: str, slices: Sequence[api.Object] = (), **more: Any) -> None:
        """Create a node with devices in ResourceSlices, by default those of `devices`; they are removed with it.

        `more` are its resources of device plugins, by default none.
        """
        await self.make(name, **{"gpus": 0, "rails": {}, **more})
        for tree in slices or devices.build_slices(name):
            self._slices.append(tree["metadata"]["name"])
            await self._api.create(tree)

    async def resize(self, name: str, resources: Mapping[str, int]) -> None:
        """Change the resources that a node offers, as a device plugin does: `{"nvidia.com/mlx5_0": 0}`."""
        changed = {resource: str(count) for resource, count in resources.items()}
        change = {"status": {"capacity": changed, "allocatable": changed}}
        await self._api.patch("Node", name, change, subresource="status")

    async def mark_broken(self, name: str, rails: str | None) -> None:
        """Name broken rails in the annotation of a node; None removes the annotation."""
        await self._api.patch("Node", name, {"metadata": {"annotations": {"railwright.io/broken-rails": rails}}})

    async def remove(self, *names: str) -> None:
        """Delete these nodes, or all that were made here with their slices."""
        if not names:
            await asyncio.gather(*(self._api.delete("ResourceSlice", name) for name in self._slices))
            self._slices.clear()
        for name in names or tuple(self.names):
            await self._api.delete("Node", name, grace=0)
            self.names.remove(name)

    async def _is_ready(self, uid: str) -> bool:
        """Return True once the node is ready and has no taint of an unready one."""
        if self._listed is None or time.monotonic() > self._listed_at + _LIST_SECONDS:
            self._listed_at = time.monotonic()
            self._listed = asyncio.create_task(self._list_by_uid())
        node = (await asyncio.shield(self._listed)).get(uid)
        assert node, "not in the list yet"
        taints = {taint["key"] for taint in node["spec"].get("taints", ())}
        conditions = {condition["type"]: condition["status"] for condition in node["status"].get("conditions", ())}
        assert conditions.get("Ready") == "True", f"conditions {conditions}"
        assert _NOT_READY not in taints, f"taints {taints}"
        return True

    async def _list_by_uid(self) -> dict[str, api.Object]:
        return {node["metadata"]["uid"]: node for node in await self._api.list("Node")}


def _condition(*, ready: bool) -> dict[str, str]:
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": "Ready",
        "status": str(ready),
        "reason": "Test",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
