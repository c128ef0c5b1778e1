"""Boots a QEMU guest with Debian's kernel, which has RDMA devices in software, and with the files of the host.

QEMU emulates the processor, so that nested virtualisation is not needed. The guest sees the host's files read-only,
below a tmpfs for its writes; host and guest share one folder. The guest has an interface on each bridge of a site's
network.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import debian
from plane import binaries, processes

from realnode import builds, kernel_modules, layout, network

PACKAGES = (
    "qemu-system-x86", "seabios", "linux-image-amd64", "kmod", "iproute2", "ibverbs-providers", "ibverbs-utils",
    "perftest", *kernel_modules.PACKAGES,
)  # fmt: skip
_TESTS = pathlib.Path(__file__).resolve().parent.parent
_INIT = pathlib.Path(__file__).with_name("machine-init.sh")
_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")  # for init; the rest comes from the machine's files
_PACK = 'cd "$0" && find . | "$1" cpio -o -H newc > "$2"'
_MEGABYTES = 2048


def prepare() -> pathlib.Path:
    """Return the folder of the unpacked packages with our modules, made once. Raises debian.UnavailableError."""
    sources = (pathlib.Path("/etc/os-release"), pathlib.Path(kernel_modules.__file__))
    folder = binaries.get_cache_folder("node-vm", repr(PACKAGES).encode(), *sources)
    with binaries.lock_folder(folder):
        debian.unpack(folder / "root", PACKAGES)
        kernel_modules.build(folder / "root")
    return folder / "root"


def start(node: layout.Node, cables: network.Network, file: pathlib.Path) -> processes.Process:
    """Boot a machine that becomes the node which `file` describes; it ends with the process that started it.

    Raises debian.UnavailableError.
    """
    packages, folder = prepare(), pathlib.Path(node.folder)
    shared = node.binds[0]
    (kernel,) = (packages / "boot").glob("vmlinuz-*")
    boot = {"console": "ttyS0", "panic": -1, "mitigations": "off", "edd": "off", "PYTHONPATH": _TESTS}
    boot |= {"PYTHON": os.path.realpath(sys.executable), "FOLDER": shared, "FILE": file}
    command = [
        *(*cables.enter, packages / "usr/bin/qemu-system-x86_64"),
        *("-accel", "tcg,thread=multi", "-cpu", "Nehalem,+rdrand", "-m", _MEGABYTES, "-smp", "1"),
        *("-nodefaults", "-no-reboot", "-display", "none", "-vga", "none", "-serial", "stdio"),
        *("-L", packages / "usr/share/qemu", "-L", packages / "usr/share/seabios"),
        *("-virtfs", "local,path=/,mount_tag=outside,security_model=none,readonly=on,multidevs=remap"),
        *("-virtfs", f"local,path={shared},mount_tag=shared,security_model=none,multidevs=remap"),
        *("-kernel", kernel, "-initrd", _make_initramfs(packages, folder)),
        *("-append", " ".join(["quiet", *(f"{name}={value}" for name, value in boot.items())])),
    ]
    for index, port in enumerate(cables.make_taps(node)):
        mac, mtu = layout.name_mac(node.number, index), layout.MTU if index else 1500
        command += ["-netdev", f"tap,id={port},ifname={port},script=no,downscript=no"]
        command += ["-device", f"virtio-net-pci,netdev={port},mac={mac},host_mtu={mtu},romfile="]
    (modules,) = (packages / "usr/lib").glob("*-linux-gnu/qemu")
    environment = {"LD_LIBRARY_PATH": ":".join(debian.library_paths(packages)), "QEMU_MODULE_DIR": str(modules)}
    return processes.Process("machine", list(map(str, command)), logs=pathlib.Path(node.logs)).start(environment)


def _make_initramfs(packages: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Make the files of the first process: a shell, and kernel modules for its mounts."""
    root, busybox = folder / "initramfs", builds.locate().busybox
    for name in ("bin", "dev", "memory", "modules", "outside", "proc"):
        (root / name).mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")
    for name in ("cat", "insmod", "mkdir", "mount", "switch_root"):
        (root / "bin" / name).symlink_to("busybox")
    shutil.copy(_INIT, root / "init")
    (root / "init").chmod(0o755)
    (tree,) = (packages / "lib/modules").iterdir()
    lines = (line.split(":") for line in (tree / "modules.dep").read_text().splitlines())
    dependencies = {path: needed.split() for path, needed in lines}
    names = {pathlib.Path(path).name.partition(".")[0]: path for path in dependencies}
    wanted = [names[name] for name in _MODULES if name in names]  # others are in the kernel
    order = dict.fromkeys(needed for path in wanted for needed in (*reversed(dependencies[path]), path))
    for path in order:
        shutil.copy(tree / path, root / "modules")
    (root / "modules/order").write_text("\n".join(pathlib.Path(path).name for path in order))
    archive = folder / "initramfs.cpio"
    subprocess.run(["sh", "-ec", _PACK, root, busybox, archive], check=True, capture_output=True)
    return archive
