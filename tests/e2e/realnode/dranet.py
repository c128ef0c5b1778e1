"""dranet, a driver of NICs for Dynamic Resource Allocation, on the node whose containerd has NRI.

It is installed by its own manifest: a DaemonSet of privileged pods in the node's network namespace. What differs is the
image, the node, and the /sys that it reads.
"""

import pathlib

import yaml
from plane import api, waiting

from realnode import dranet_build, function_sysfs, images, keeper, layout, site

DRIVER = "dra.net"
NAMESPACE = "kube-system"  # of its DaemonSet
_IMAGE = "localhost/dranet:1"
_SLICE = "resource.k8s.io/v1/ResourceSlice"


class Driver:
    """Installs and removes dranet on a site."""

    def __init__(self, running: site.Site) -> None:
        self._site, self._api = running, running.plane.api
        self._sysfs = running.folder / keeper.NODES / "function-sysfs"
        self._objects: list[api.Object] = []

    async def install(self) -> None:
        """Install it, and wait until its ResourceSlice has all virtual functions of the node."""
        ready = dranet_build.locate()
        archive = self._site.folder / keeper.NODES / "dranet.tar"
        await self._site.nodes[layout.NRI_NODE].load(images.make_program(ready.program, _IMAGE, archive))
        function_sysfs.make(self._sysfs)
        self._objects = [tree for tree in yaml.safe_load_all(ready.manifest.read_text()) if tree]
        (daemon_set,) = (tree for tree in self._objects if tree["kind"] == "DaemonSet")
        _adapt(daemon_set["spec"]["template"]["spec"], self._sysfs)
        await self._site.plane.apply(yaml.safe_dump_all(self._objects))

        async def is_published() -> bool:
            return len(await self.list_functions()) == layout.FUNCTIONS

        await waiting.wait(is_published, seconds=120, describe=self.describe)

    async def remove(self) -> None:
        """Remove it and its ResourceSlices."""
        await self._site.plane.kubectl("delete", "--wait", "--filename=-", stdin=yaml.safe_dump_all(self._objects))

        async def is_gone() -> bool:
            for entry in await self._list_slices():
                await self._api.delete(_SLICE, entry["metadata"]["name"])
            return not await self._api.list("Pod", NAMESPACE, labels="app=dranet") and not await self._list_slices()

        await waiting.wait(is_gone, seconds=60, describe="dranet and its slices to be gone")

    async def list_functions(self) -> dict[str, dict[str, object]]:
        """Return the attributes of each published PCI device: by device, then by name."""
        devices = [device for entry in await self._list_slices() for device in entry["spec"].get("devices", [])]
        return {
            device["name"]: {name: next(iter(value.values())) for name, value in device["attributes"].items()}
            for device in devices
            if device["name"].startswith("pci-")
        }

    async def _list_slices(self) -> list[api.Object]:
        slices = await self._api.list(_SLICE)
        return [entry for entry in slices if entry["spec"]["driver"] == DRIVER]

    async def describe(self) -> str:
        """Return its pods and the end of their log, for messages of failed tests."""
        options = (f"--namespace={NAMESPACE}", "--selector=app=dranet")
        described = await self._site.plane.kubectl("describe", "pods", *options)
        log = await self._site.plane.kubectl("logs", *options, "--tail=40", check=False)
        return f"dranet to do its work\n{described}\n{log}"


def _adapt(spec: api.Object, sysfs: pathlib.Path) -> None:
    """Set the image, the /sys and the node with NRI in the DaemonSet's pods."""
    spec["nodeSelector"] = {"kubernetes.io/hostname": layout.NRI_NODE}
    spec["volumes"].insert(0, {"name": "sysfs", "hostPath": {"path": str(sysfs), "type": "Directory"}})
    (container,) = spec["containers"]
    container["image"] = _IMAGE
    container["args"].append("--cloud-provider-hint=NONE")  # nothing outside of the site can be asked
    container["volumeMounts"].insert(0, {"name": "sysfs", "mountPath": "/sys"})
