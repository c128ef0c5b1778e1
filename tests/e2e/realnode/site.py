"""A site: a control plane and two real nodes in namespaces that no packet leaves.

The site ends with the process that runs it, also after SIGKILL, and leaves nothing.
"""

import asyncio
import contextlib
import os
import pathlib
from collections.abc import AsyncIterator

from plane import binaries, waiting

from realnode import builds, controls, hardware, images, keeper, layout, network, node

_READY_SECONDS = 120
_RESOURCES = len(hardware.list_resources())


class Site:
    """A running site. Made by `run`."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.logs = logs_in(folder)
        self.ready = builds.locate()
        self.network = network.Network(folder, [self._name_cgroup(name) for name in layout.NODES])
        self.plane = controls.Controls(binaries.locate(builds.CONTROL_PLANE), folder / "plane", self.network)
        self.plane.write_credentials()
        self.nodes = {name: node.Node(self.describe_node(name), self.network) for name in layout.NODES}
        self.images: dict[str, images.Image] = {}

    async def start(self) -> None:
        """Start everything; returns when both nodes are ready with all devices."""
        await asyncio.gather(self.plane.start(), self.start_nodes())
        await self.plane.install_networks(self.ready)
        await waiting.wait(self._are_ready, seconds=_READY_SECONDS, describe=self._explain)

    async def start_nodes(self) -> None:
        """Start the nodes and give them the images of the smallest pods; kubelet waits for the API server."""
        folder = self.folder / keeper.NODES
        folder.mkdir()
        basic = (
            images.make_pause(self.ready.programs / "pause", folder / "pause.tar"),
            images.make_busybox(self.ready.busybox, folder / "busybox.tar"),
        )
        await asyncio.gather(*(node.start() for node in self.nodes.values()))
        await asyncio.gather(*(self.load(image) for image in basic))

    async def stop(self) -> None:
        """End everything: nodes first. Logs stay."""
        await asyncio.gather(*(node.kill() for node in self.nodes.values()))
        if hasattr(self.plane, "session"):
            await self.plane.stop()
        await self.network.close()

    async def load(self, image: images.Image) -> None:
        """Load an image on all nodes, once."""
        if image.name not in self.images:
            self.images[image.name] = image
            await asyncio.gather(*(node.load(image) for node in self.nodes.values()))

    async def restart(self, name: str) -> None:
        """Start a killed node again, with its images; returns when all nodes are ready."""
        await self.nodes[name].restart()
        for image in self.images.values():
            await self.nodes[name].load(image)
        await waiting.wait(self._are_ready, seconds=_READY_SECONDS, describe=self._explain)

    async def execute(self, namespace: str, pod: str, *command: str, container: str = "") -> str:
        """Run a command in a container, as `kubectl exec` does."""
        options = [f"--namespace={namespace}", *([f"--container={container}"] if container else [])]
        return await self.plane.kubectl("exec", *options, pod, "--", *command, seconds=300)

    def describe_node(self, name: str) -> layout.Node:
        """Return the settings of a node of the site."""
        number = [*layout.NODES, *layout.VIRTUAL_NODES].index(name) + 1
        binds = (str(self.folder), str(binaries.cache()))
        debian_programs = self.ready.packages / "usr/bin"
        return layout.Node(
            name=name,
            number=number,
            folder=str(self.folder / keeper.NODES / name),
            logs=str(self.logs / name),
            cgroup=self._name_cgroup(name),
            credentials=str(self.plane.certificates.folder),
            programs=str(self.ready.programs),
            kubelet=str(self.ready.programs / "kubelet"),
            containerd=str(debian_programs if name == layout.NODES[0] else self.ready.programs / "containerd"),
            debian=str(self.ready.packages),
            binds=binds,
            libraries=self.ready.libraries,
        )

    def _name_cgroup(self, name: str) -> str:
        return f"railwright-{os.getpid()}-{name}"

    async def _are_ready(self) -> bool:
        nodes = await self.plane.api.list("Node")
        for worker in nodes:
            conditions = {entry["type"]: entry["status"] for entry in worker["status"].get("conditions", [])}
            assert conditions.get("Ready") == "True", f"{worker['metadata']['name']}: {conditions}"
            amounts = worker["status"].get("allocatable", {}).items()
            assert sum("/" in name and int(amount) > 0 for name, amount in amounts) == _RESOURCES, worker["status"]
        return len(nodes) == len(self.nodes)

    def _explain(self) -> str:
        logs = [self.logs / name / f"{program}.log" for name in self.nodes for program in ("node", "kubelet")]
        lines = ["both nodes to be ready with all devices"]
        for path in filter(pathlib.Path.exists, logs):
            lines += [f"{path}:", *path.read_text(errors="replace").splitlines()[-15:]]
        return "\n".join(lines)


def logs_in(folder: pathlib.Path) -> pathlib.Path:
    """Return the folder of all logs of a site in `folder`."""
    return folder / "plane" / "logs"


@contextlib.asynccontextmanager
async def run(folder: pathlib.Path) -> AsyncIterator[Site]:
    """Run a site in `folder` for the length of a `with` block."""
    site = Site(folder)
    try:
        await site.start()
        yield site
    finally:
        await site.stop()
