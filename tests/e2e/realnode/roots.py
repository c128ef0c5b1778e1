"""The root of a node: an overlay of the machine's files and a tmpfs, with mounts that no other node can see.

Every default path (/etc/cni, /var/lib/kubelet, /run, /dev) is private and gone with the node. Standard library only.
"""

import os
import pathlib
import subprocess

from realnode import layout

# name, major, minor: what containers are given, and /dev/kmsg as an empty source for kubelet's watch of the kernel log
_DEVICES = (
    ("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0), ("kmsg", 1, 11),
)  # fmt: skip
# kubelet sets these for the whole machine (--protect-kernel-defaults would only make it exit): it gets files instead
_SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
            "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")  # fmt: skip
_FOLDERS = (
    "etc/cni/net.d", "opt/cni", "var/lib/cni", "var/lib/containerd", "var/lib/kubelet", "var/log/containers",
    "var/log/pods",
)  # fmt: skip


def mount(*arguments: str | os.PathLike[str]) -> None:
    """Run mount(8)."""
    subprocess.run(["mount", *map(str, arguments)], check=True)


def enter(node: layout.Node) -> None:
    """Make the root of `node` and move this process into it. Its namespaces have to be new."""
    mount("--make-rprivate", "/")
    scratch = pathlib.Path(node.folder) / "root"
    scratch.mkdir()
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", scratch)
    upper, work, root = (scratch / name for name in ("upper", "work", "root"))
    for folder in (upper, work, root):
        folder.mkdir()
    mount("-t", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", "overlay", root)
    for name in _FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    _mount_kernel(root)
    _make_devices(root / "dev")
    for name in ("run", "tmp"):
        mount("-t", "tmpfs", "tmpfs", root / name)
    _bind(node, root)
    _divert_sysctls(root)
    _pivot(root)


def _mount_kernel(root: pathlib.Path) -> None:
    mount("-t", "proc", "proc", root / "proc")
    mount("-t", "sysfs", "sysfs", root / "sys")
    mount("--rbind", "/sys/fs/cgroup", root / "sys/fs/cgroup")


def _make_devices(folder: pathlib.Path) -> None:
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
    for name, major, minor in _DEVICES:
        make_device(folder / name, major, minor)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (folder / name).symlink_to(target)
    (folder / "ptmx").symlink_to("pts/ptmx")
    for name in ("pts", "shm"):
        (folder / name).mkdir()
    mount("-t", "devpts", "-o", "newinstance,ptmxmode=666", "devpts", folder / "pts")
    mount("-t", "tmpfs", "tmpfs", folder / "shm")


def make_device(path: pathlib.Path, major: int, minor: int) -> None:
    """Make a character device that everybody may use."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, 0o020666, os.makedev(major, minor))
    path.chmod(0o666)


def _bind(node: layout.Node, root: pathlib.Path) -> None:
    """Bind kubelet's folder, which cadvisor wants on a real disk, and the folders whose path stays.

    containerd's folder, with all images, is in memory: an overlay cannot be in another, and nothing has to be deleted.
    """
    kubelet = pathlib.Path(node.folder) / "kubelet"
    kubelet.mkdir(exist_ok=True)
    mount("--bind", kubelet, root / "var/lib/kubelet")
    mount("-t", "tmpfs", "-o", "mode=711", "tmpfs", root / "var/lib/containerd")
    for path in node.binds:
        (root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        mount("--bind", path, root / path.lstrip("/"))


def _divert_sysctls(root: pathlib.Path) -> None:
    folder = root / "run/sysctls"
    folder.mkdir()
    for name in _SYSCTLS:
        source = pathlib.Path("/proc/sys") / name
        copy = folder / name.replace("/", "_")
        copy.write_text(source.read_text())
        mount("--bind", copy, root / "proc/sys" / name)


def _pivot(root: pathlib.Path) -> None:
    (root / "old").mkdir()
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "old"], check=True)
    os.chdir("/")
    subprocess.run(["umount", "-l", "/old"], check=True)
    mount("--make-rshared", "/")  # kubelet's volumes have to reach containers
