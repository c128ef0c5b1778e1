"""Starts, enters and kills a node, and loads images on it."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
from typing import Any

from plane import processes, waiting

from realnode import cgroups, hardware, images, layout, network, services

_NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child")
_IMPORT_SECONDS = 900  # about 5 where nothing else runs and the processor is not emulated
_PACKAGE = pathlib.Path(__file__).resolve().parent.parent


class Node:
    """A running node. It ends with the process that started it."""

    import_options: tuple[str, ...] = ("--no-unpack",)  # of `ctr images import`: containerd unpacks for a container

    def __init__(self, settings: layout.Node, cables: network.Network) -> None:
        self.settings = settings
        self.name = settings.name
        self.logs = pathlib.Path(settings.logs)
        self._cables = cables
        self._process: processes.Process | None = None
        self._pid = 0  # of the node's first process

    async def start(self) -> None:
        """Start it and connect its cables; return before kubelet is ready."""
        inside = [sys.executable, "-m", "realnode.inside", str(self._write_files())]
        command = [*self._cables.enter, "unshare", *_NAMESPACES, *inside]
        process = processes.Process("node", command, logs=self.logs)
        self._process = process.start({"PYTHONPATH": str(_PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"})
        self._pid = await waiting.wait(self._find_first, describe=lambda: f"{self.name} to start:\n{process.tail()}")
        self._cables.plug(self.settings, self._pid)

    def list_resources(self) -> list[dict[str, Any]]:
        """Return the resources that its device plugin offers at first."""
        return hardware.list_resources()

    def _write_files(self) -> pathlib.Path:
        folder = pathlib.Path(self.settings.folder)
        folder.mkdir(parents=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        hardware.write_resources(self.settings.device_file, self.list_resources())
        self.settings.write(folder / "node.json")
        return folder / "node.json"

    def _find_first(self) -> int:
        assert self._process is not None
        self._process.assert_running()
        pid = self._process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        # only a child of `unshare` in a namespace of its own: before that, the process is nsenter or the tether
        if (
            not children
            or pathlib.Path(f"/proc/{children[0]}/ns/net").readlink() == pathlib.Path(self._cables.path).readlink()
        ):
            return 0
        return int(children[0])

    async def run(self, *command: str, seconds: float = 120) -> str:
        """Run a program of the machine or of Debian in the node; returns its output."""
        entered = ("nsenter", f"--target={self._pid}", "--all", "--", *command)
        environment = {**os.environ, **services.environment(self.settings.debian, self.settings.libraries)}
        code, output, _ = await processes.run(*entered, seconds=seconds, env=environment, stderr=subprocess.STDOUT)
        assert code == 0, f"{' '.join(command)} on {self.name}: exit {code}\n{output}"
        return output

    async def load(self, image: images.Image) -> None:
        """Load an image on the node, as a pull would."""

        async def is_serving() -> bool:
            return "Server" in await self.run("ctr", "version")

        await waiting.wait(is_serving, seconds=300, describe=f"containerd of {self.name}")
        command = ("ctr", "--namespace=k8s.io", "images", "import", *self.import_options, str(image.archive))
        await self.run(*command, seconds=_IMPORT_SECONDS)
        listed = await self.run("ctr", "--namespace=k8s.io", "images", "list", "-q")
        assert image.name in listed.split(), f"{image.name} is not among the images of {self.name}: {listed}"

    async def signal(self, program: str, number: signal.Signals) -> None:
        """Send a signal to a program of the node by its name; the node starts it again when it ends."""
        await self.run("pkill", f"-{number.name.removeprefix('SIG')}", "-x", program)

    async def kill(self) -> None:
        """End the node at once, as a power cut would."""
        if self._process is not None:
            await self._process.kill()  # unshare takes the node's first process with it, and that everything

    async def restart(self) -> None:
        """Start it again after `kill`, with an empty disk: images have to be loaded again."""
        await waiting.wait(
            lambda: cgroups.remove(self.settings.cgroup), describe=f"the cgroup of {self.name} to be empty"
        )
        shutil.rmtree(self.settings.folder)
        await self.start()

    def offer(self, resources: list[dict[str, Any]]) -> None:
        """Change the resources that the device plugin offers."""
        hardware.write_resources(self.settings.device_file, resources)
