"""An image with perftest, whose programs write and read over RDMA devices, and the library's drivers of soft RoCE."""

import hashlib
import pathlib
import shutil

import debian
from plane import binaries

from realnode import base_image, builds, images, virtual_machine

NAME = "localhost/perftest:1"
_PROGRAMS = ("ib_write_bw",)
_TOOLS = ("sh", "awk", "cat", "env", "grep", "ip", "ls", "sed", "sleep", "timeout")


def build() -> images.Image:
    """Make the image of the virtual machine's packages unless it is cached. Raises debian.UnavailableError."""
    packages = virtual_machine.prepare()
    key = hashlib.sha256(pathlib.Path(__file__).read_bytes() + str(packages).encode()).hexdigest()[:16]
    folder = binaries.cache() / f"node-perftest-{key}"
    image = images.Image(NAME, folder / "perftest.tar")
    with binaries.lock_folder(folder):
        if not image.archive.exists():
            shutil.rmtree(folder / "root", ignore_errors=True)
            _make(folder / "root", packages)
            images.write_layers(image, [folder / "root"], {"Cmd": ["/bin/sh"]})
            shutil.rmtree(folder / "root")
    return image


def _make(root: pathlib.Path, packages: pathlib.Path) -> None:
    for name in ("bin", "etc/libibverbs.d", "lib64", "tmp", "usr/lib"):
        (root / name).mkdir(parents=True)
    shutil.copy(builds.locate().busybox, root / "bin/busybox")
    for name in _TOOLS:
        (root / "bin" / name).symlink_to("busybox")
    libraries = debian.library_paths(packages)
    for name in _PROGRAMS:
        base_image.copy_program(root, packages / "usr/bin" / name, f"/bin/{name}", libraries)
    (driver,) = packages.glob("usr/lib/*-linux-gnu/libibverbs/librxe-*.so")
    base_image.copy_program(root, driver, f"/{driver.relative_to(packages)}", libraries)
    shutil.copy(packages / "etc/libibverbs.d/rxe.driver", root / "etc/libibverbs.d")
    (loader,) = pathlib.Path("/lib64").glob("ld-linux-*.so.*")
    shutil.copy(loader, root / "lib64")
