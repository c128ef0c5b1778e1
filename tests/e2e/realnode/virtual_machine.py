"""A virtual machine with Debian's kernel, its soft RoCE driver and soft iWARP: devices, GID tables, uverbs and sysfs.

qemu emulates the processor, so that nested virtualisation is not needed. The whole root is an initramfs: the files of
the base image, railwright's preflight, iproute2, perftest and the kernel modules. Nothing of the machine is mounted.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

import debian
from plane import binaries

from realnode import base_image, builds, soft_iwarp

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests" / "data" / "e2e-rdma-init.sh"
PACKAGES = (
    "qemu-system-x86", "seabios", "linux-image-amd64", "ibverbs-utils", "ibverbs-providers", "perftest", "iproute2",
    "kmod", *soft_iwarp.PACKAGES,
)  # fmt: skip
_MODULES = ("rdma_rxe", "ib_uverbs", "rdma_ucm", "veth", "macvlan", "crc32_generic", "crc32c_generic", "libcrc32c")
_DRIVERS = ("rxe", "siw")  # of libibverbs
_PROGRAMS = ("usr/bin/ib_write_bw", "usr/bin/ibv_devinfo", "bin/ip", "usr/bin/rdma")
_TOOLS = ("mount", "insmod", "poweroff", "sleep", "cat", "ls")
_BOOT = "console=ttyS0 panic=-1 mitigations=off edd=off quiet"
_PACK = 'cd "$0" && find . | "$1" cpio -o -H newc > "$2"'


def find_obstacle() -> str:
    """Return why the machine cannot be made here, in one line; empty where it can."""
    running = "{}.{}".format(*sys.version_info)
    return base_image.find_obstacle(running)


def run(devices: Sequence[str], *, folder: pathlib.Path, seconds: float) -> dict[str, tuple[str, int]]:
    """Boot it, and return the output and exit code of each step of SCRIPT.

    `devices` are those over which bytes are written. Raises debian.UnavailableError.
    """
    packages = prepare()
    initramfs = _make_initramfs(packages, devices, folder)
    (kernel,) = (packages / "boot").glob("vmlinuz-*")
    command = [
        *(
            packages / "usr/bin/qemu-system-x86_64",
            "-accel",
            "tcg",
            "-cpu",
            "Nehalem,+rdrand",
            "-m",
            "1024",
            "-smp",
            "1",
        ),
        *("-nodefaults", "-no-reboot", "-display", "none", "-vga", "none", "-nic", "none", "-serial", "stdio"),
        *("-L", packages / "usr/share/qemu", "-L", packages / "usr/share/seabios"),
        *("-kernel", kernel, "-initrd", initramfs, "-append", _BOOT),
    ]
    (modules,) = (packages / "usr/lib").glob("*-linux-gnu/qemu")
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(debian.library_paths(packages)),
        "QEMU_MODULE_DIR": str(modules),
    }
    done = subprocess.run(
        [str(part) for part in command],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    steps = re.findall(r"^@@ (\S+)\n(.*?)^@@ exit (\d+)$", done.stdout.replace("\r", ""), re.MULTILINE | re.DOTALL)
    assert steps, f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    return {name: (output, int(code)) for name, output, code in steps}


def prepare() -> pathlib.Path:
    """Return the folder of the unpacked packages, fetched once; the module of soft iWARP is beside it.

    Raises debian.UnavailableError.
    """
    release = pathlib.Path("/etc/os-release").read_bytes()
    key = hashlib.sha256(repr(PACKAGES).encode() + release).hexdigest()[:16]
    folder = binaries.cache() / f"node-vm-{key}"
    with binaries.alone(folder):
        debian.unpack(folder / "root", PACKAGES)
        soft_iwarp.build(folder / "root", folder)
    return folder / "root"


def _make_initramfs(packages: pathlib.Path, devices: Sequence[str], folder: pathlib.Path) -> pathlib.Path:
    root = folder / "root"
    base_image.make(root, builds.locate().busybox)
    for name in _TOOLS:
        (root / "bin" / name).unlink(missing_ok=True)
        (root / "bin" / name).symlink_to("busybox")
    (root / "bin/ip").unlink()  # Debian's knows macvlan
    for name in _PROGRAMS:
        base_image.copy_program(root, packages / name, f"/{name}", debian.library_paths(packages))
    _copy_verbs_drivers(root, packages)
    _copy_modules(root, packages)
    site_packages = next((root / "usr/local/lib").glob("python3.*/site-packages"))
    for name in ("__init__.py", "preflight"):
        source = ROOT / "railwright" / name
        target = site_packages / "railwright" / name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    (root / "devices").write_text("\n".join(devices))
    shutil.copy(SCRIPT, root / "init")
    (root / "init").chmod(0o755)
    archive = folder / "initramfs"
    subprocess.run(["sh", "-ec", _PACK, root, builds.locate().busybox, archive], check=True, capture_output=True)
    return archive


def _copy_verbs_drivers(root: pathlib.Path, packages: pathlib.Path) -> None:
    """Copy the parts of libibverbs that drive the devices, and the files by which they are found."""
    (root / "etc/libibverbs.d").mkdir()
    for name in _DRIVERS:
        (driver,) = packages.glob(f"usr/lib/*-linux-gnu/libibverbs/lib{name}-*.so")
        base_image.copy_program(root, driver, f"/{driver.relative_to(packages)}", debian.library_paths(packages))
        shutil.copy(packages / f"etc/libibverbs.d/{name}.driver", root / "etc/libibverbs.d")


def _copy_modules(root: pathlib.Path, packages: pathlib.Path) -> None:
    """Copy the kernel modules and those that they need, with a file of the order in which they are loaded."""
    (tree,) = (packages / "lib/modules").iterdir()
    if not (tree / "modules.dep").exists():
        command = ["depmod", "--basedir", str(packages), tree.name]
        environment = {"LD_LIBRARY_PATH": ":".join(debian.library_paths(packages))}
        subprocess.run(command, executable=packages / "bin/kmod", env=environment, check=True)
    lines = (line.split(":") for line in (tree / "modules.dep").read_text().splitlines())
    dependencies = {path: needed.split() for path, needed in lines}
    by_name = {pathlib.Path(path).name.partition(".")[0].replace("-", "_"): path for path in dependencies}
    paths = [by_name[name] for name in _MODULES if name in by_name]
    order = list(dict.fromkeys(dependency for path in paths for dependency in (*reversed(dependencies[path]), path)))
    (root / "modules").mkdir()
    for path in order:
        shutil.copy(tree / path, root / "modules")
    shutil.copy(packages.parent / "siw.ko", root / "modules")
    (root / "modules/order").write_text("\n".join([*(pathlib.Path(path).name for path in order), "siw.ko"]))
