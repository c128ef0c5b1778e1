"""The first process of a node: `python -m realnode.inside NODE_FILE`, in namespaces of its own.

It makes the root, the network and the cgroup of the node, starts its programs, and reaps. The node ends with it.
Everything is imported before the root changes. Standard library only.
"""

import pathlib
import socket
import subprocess
import sys
import time

from realnode import cgroups, hardware, layout, roots, services


def main() -> None:
    """Start the node that the file describes."""
    node = layout.read_node(pathlib.Path(sys.argv[1]))
    roots.enter(node)
    socket.sethostname(node.name)
    _configure_network(node)
    cgroups.make(node.cgroup)
    hardware.make_gpus()
    hardware.make_verbs()
    hardware.make_sysfs()
    hardware.make_functions()
    services.write_configurations(node)
    services.supervise(services.list_services(node))


def _configure_network(node: layout.Node) -> None:
    """Wait until all cables are plugged in, then give them addresses and routes."""
    rails = [layout.name_interface(rail) for rail in range(layout.RAILS)]
    for name in ("eth0", *rails):
        while not pathlib.Path("/sys/class/net", name).exists():
            time.sleep(0.02)
    _run_ip("link", "set", "lo", "up")
    _run_ip("addr", "add", f"{node.address}/24", "dev", "eth0")
    _run_ip("link", "set", "eth0", "up")
    _run_ip("route", "add", "default", "via", layout.GATEWAY)
    for name in rails:
        _run_ip("link", "set", name, "mtu", "9000", "up")
    for index in range(layout.FUNCTIONS):
        master = rails[index * layout.RAILS // layout.FUNCTIONS]
        function = ("name", layout.name_function(index), "mtu", "9000", "type", "macvlan", "mode", "bridge")
        _run_ip("link", "add", "link", master, *function)
    pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _run_ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


if __name__ == "__main__":
    main()
