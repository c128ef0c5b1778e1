"""The first process of a virtual node: `python -m realnode.guest NODE_FILE`.

It mounts what a node needs, names the interfaces and gives them addresses, makes a soft RoCE device of each rail's, and
starts the node's programs. Standard library only.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys

from realnode import hardware, layout, roots, services

_FOLDERS = ("etc/cni/net.d", "opt/cni", "var/lib/cni", "var/lib/containerd", "var/lib/kubelet", "var/log/pods")
_MODULES = ("virtio_net", "ib_uverbs", "rdma_ucm", "rdma_rxe", "macvlan", "veth", "bridge", "br_netfilter", "nf_tables")

# kubelet cannot tell how full a tmpfs is; an emulated processor has no time for reports each second
_KUBELET = {
    "localStorageCapacityIsolation": False,
    "nodeStatusUpdateFrequency": "10s",
    "nodeLeaseDurationSeconds": 16,
    "syncFrequency": "60s",
}


def main() -> None:
    """Start the node that the file describes."""
    node = layout.read_node(pathlib.Path(sys.argv[1]))
    _mount()
    socket.sethostname(node.name)
    pathlib.Path("/etc/machine-id").write_text(f"{node.number:032x}\n")
    os.environ |= services.environment(node.kernel, node.libraries)  # rdma(8)
    _load_modules(node)
    _configure_network(node)
    hardware.make_gpus()
    hardware.make_sysfs()  # for the CNI plugin `gids` of the networks; containers see the kernel's
    for rail in range(layout.RAILS):
        device, interface = layout.name_device(rail), layout.name_interface(rail)
        _run("rdma", "link", "add", device, "type", "rxe", "netdev", interface)
    services.write_configurations(node)
    kubelet = pathlib.Path("/etc/kubelet.json")
    kubelet.write_text(json.dumps({**json.loads(kubelet.read_text()), **_KUBELET}))
    server = [sys.executable, "-m", "realnode.command_server", node.address]
    commands = services.Service("commands", server, services.environment(node.debian), node.logs)
    # no pod there uses a Service, and kube-proxy takes much of an emulated processor's time
    needed = [service for service in services.list_services(node) if service.name != "kube-proxy"]
    services.supervise([*needed, commands])


def _mount() -> None:
    """Mount the kernel's file systems, and tmpfs where a node writes."""
    for name in _FOLDERS:
        pathlib.Path("/", name).mkdir(parents=True, exist_ok=True)
    for kind, place in (("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("cgroup2", "/sys/fs/cgroup")):
        roots.mount("-t", kind, kind, place)
    for place in ("/dev/pts", "/dev/shm"):
        pathlib.Path(place).mkdir(exist_ok=True)
    roots.mount("-t", "devpts", "-o", "ptmxmode=666", "devpts", "/dev/pts")
    for place in ("/dev/shm", "/run", "/var/lib/containerd", "/var/lib/kubelet"):
        roots.mount("-t", "tmpfs", "tmpfs", place)
    roots.mount("--make-rshared", "/")  # kubelet's volumes have to reach containers


def _load_modules(node: layout.Node) -> None:
    """Load kernel modules, and let the kernel load others when it needs them."""
    modules = pathlib.Path("/lib/modules")
    modules.mkdir(exist_ok=True)
    roots.mount("--bind", f"{node.kernel}/lib/modules", modules)
    program = pathlib.Path("/run/modprobe")
    program.symlink_to(node.busybox)
    pathlib.Path("/proc/sys/kernel/modprobe").write_text(str(program))
    for name in _MODULES:
        _run(str(program), name)


def _configure_network(node: layout.Node) -> None:
    """Name each interface by its MAC address; give them addresses and routes."""
    paths = pathlib.Path("/sys/class/net").iterdir()
    links = {(path / "address").read_text().strip(): path.name for path in paths}
    names = {rail + 1: layout.name_interface(rail) for rail in range(layout.RAILS)} | {0: "eth0"}  # eth0 gets free
    for index, name in names.items():
        _run("ip", "link", "set", links[layout.name_mac(node.number, index)], "name", name)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "addr", "add", f"{node.address}/24", "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    _run("ip", "route", "add", "default", "via", layout.GATEWAY)
    for rail in range(layout.RAILS):
        interface = layout.name_interface(rail)
        _run("ip", "link", "set", interface, "mtu", str(layout.MTU), "up")
        for last in node.rail_addresses:
            _run("ip", "addr", "add", f"192.168.{rail + 2}.{last}/24", "dev", interface)
    pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
