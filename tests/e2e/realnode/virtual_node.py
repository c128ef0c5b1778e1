"""Nodes in virtual machines, whose kernel has RDMA devices. They join a site for the length of a `with` block.

A virtual node has the methods of the site's other nodes; those offer no devices while virtual nodes are there.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import debian
from plane import manifests, waiting

from realnode import builds, hardware, images, layout, node, rdma_image, services, site, virtual_machine

_IMAGES = (services.PAUSE_IMAGE, images.BUSYBOX, rdma_image.NAME)  # others are loaded where a test needs them
_BOOT_SECONDS = 900  # about 15 where nothing else runs
_READY_SECONDS = 900


class VirtualNode(node.Node):
    """A running virtual node."""

    import_options = ()  # an emulated processor unpacks a large image in more time than kubelet waits for a container

    async def start(self) -> None:
        """Boot it; returns when it takes commands."""
        process = self._process = virtual_machine.start(self.settings, self._cables, self._write_files())

        async def answers() -> bool:
            process.assert_running()
            return await self.run("true") == ""

        def describe() -> str:
            return f"{self.name} to boot; its console ends:\n{process.tail()}"

        await waiting.wait(answers, seconds=_BOOT_SECONDS, describe=describe)

    def list_resources(self) -> list[dict[str, Any]]:
        """Return the devices of its kernel."""
        return hardware.list_soft_roce()

    async def run(self, *command: str, seconds: float = 300) -> str:
        """Run a program in the node; returns its output."""
        code, output = await self.attempt(*command, seconds=seconds)
        assert code == 0, f"{' '.join(command)} on {self.name}: exit {code}\n{output}"
        return output

    async def attempt(self, *command: str, seconds: float = 300) -> tuple[int, str]:
        """Run a program in the node, which may fail; returns its exit code and output."""
        reader, writer = await self._cables.connect(layout.COMMAND_PORT, self.settings.address)
        with contextlib.closing(writer):
            writer.write(json.dumps(command).encode() + b"\n")
            code, output = json.loads(await asyncio.wait_for(reader.read(), seconds))
        return int(code), str(output)


@contextlib.asynccontextmanager
async def join(running: site.Site) -> AsyncIterator[list[VirtualNode]]:
    """Add the virtual nodes to a site; yield them when they are ready. Raises debian.UnavailableError."""
    packages = await asyncio.to_thread(virtual_machine.prepare)
    libraries = os.pathsep.join([running.ready.libraries, *debian.library_paths(packages)])
    nodes = []
    for name in layout.VIRTUAL_NODES:
        settings = running.describe_node(name)
        # with more addresses on one node, the GIDs of its pods have other indexes
        addresses = tuple(100 + settings.number + 10 * extra for extra in range(settings.number - len(layout.NODES)))
        settings = dataclasses.replace(
            settings,
            cgroup="",  # the root of its hierarchy
            kubelet=str(builds.locate_kubelet()),
            libraries=libraries,
            kernel=str(packages),
            busybox=str(running.ready.busybox),
            rail_addresses=addresses,
        )
        nodes.append(VirtualNode(settings, running.network))
    try:
        for other in running.nodes.values():  # pods with rails go to the virtual nodes, whose kubelets are alike
            other.offer([{**resource, "devices": []} for resource in other.list_resources()])
        await asyncio.gather(*(_start(running, virtual) for virtual in nodes))
        everything = [*running.nodes.values(), *nodes]
        await asyncio.gather(*(_wait_ready(running, server, has_devices=server in nodes) for server in everything))
        yield nodes
    finally:
        await _leave(running, nodes)


async def _leave(running: site.Site, nodes: list[VirtualNode]) -> None:
    """End the virtual nodes, and remove them from cluster and network; returns when all is as before."""
    await asyncio.gather(*(virtual.kill() for virtual in nodes))  # a running kubelet would register its node again
    for virtual in nodes:
        await running.plane.api.delete("Node", virtual.name)
        running.network.remove_taps(virtual.settings)
        for pod in await running.plane.api.list("Pod", fields=f"spec.nodeName={virtual.name}"):
            metadata = pod["metadata"]
            await running.plane.api.delete("Pod", metadata["name"], metadata["namespace"], grace=0)
    for other in running.nodes.values():
        other.offer(other.list_resources())
    await asyncio.gather(*(_wait_ready(running, other, has_devices=True) for other in running.nodes.values()))


async def _start(running: site.Site, virtual: VirtualNode) -> None:
    await virtual.start()
    for name in _IMAGES:
        await virtual.load(running.images[name])


async def _wait_ready(running: site.Site, server: node.Node, *, has_devices: bool) -> None:
    """Wait until a node is ready, and offers all its devices or none; label it with its switches."""
    expected = {resource["name"] for resource in server.list_resources()} if has_devices else set()

    async def is_ready() -> bool:
        seen = await running.plane.api.get("Node", server.name)
        conditions = {entry["type"]: entry["status"] for entry in seen["status"].get("conditions", [])}
        assert conditions.get("Ready") == "True", conditions
        offered = {name for name, count in seen["status"]["allocatable"].items() if "/" in name and int(count)}
        assert offered == expected, offered
        return True

    await waiting.wait(is_ready, seconds=_READY_SECONDS, describe=f"{server.name} to be ready with its devices")
    labels = {manifests.LEAF: "leaf-0", manifests.SPINE: "spine-0"}
    await running.plane.api.patch("Node", server.name, {"metadata": {"labels": labels}})
