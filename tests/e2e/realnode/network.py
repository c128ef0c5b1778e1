"""The network of a site: a namespace without a way out, a bridge for eth0 and one for each rail, cables to nodes.

It makes the links, and sockets in the namespace for the test's own process.
"""

import asyncio
import concurrent.futures
import json
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Sequence

import aiohttp
from plane import waiting

from realnode import layout

_NODE_PACKAGE = pathlib.Path(__file__).resolve().parent.parent


class Network:
    """The namespace, which exists as long as its keeper. The keeper removes `folder` when the run ends or dies."""

    def __init__(self, folder: pathlib.Path, cgroups: Sequence[str]) -> None:
        command = ["unshare", "--net", sys.executable, "-m", "realnode.keeper", str(folder), *cgroups]
        environment = {**os.environ, "PYTHONPATH": str(_NODE_PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"}
        self._keeper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        assert self._keeper.stdout is not None
        with self._keeper.stdout as output:
            assert output.readline() == b"ready\n", "the keeper of the site's namespace ended"
        self.path = f"/proc/{self._keeper.pid}/ns/net"
        self.enter = ("nsenter", f"--net={self.path}")
        self._thread = concurrent.futures.ThreadPoolExecutor(1, initializer=self._join)
        self._lay_bridges()

    def make_socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Return a socket that a thread of this network namespace has created."""
        family, kind, protocol, *_ = address
        made = self._thread.submit(socket.socket, family, kind, protocol).result()
        made.setblocking(False)
        return made

    async def connect(self, port: int, host: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to a port in the namespace, by default of its loopback."""
        connected = self.make_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port)))
        try:
            await asyncio.get_running_loop().sock_connect(connected, (host, port))
        except BaseException:
            connected.close()
            raise
        return await asyncio.open_connection(sock=connected)

    def plug(self, node: layout.Node, pid: int) -> None:
        """Plug the node, whose first process is `pid`, into all bridges."""
        port = f"{layout.BRIDGE}-{node.number}"
        self.run_ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        self.run_ip("link", "set", port, "master", layout.BRIDGE, "up")
        for rail in range(layout.RAILS):
            bridge, name = name_bridge(rail), layout.name_interface(rail)
            port = f"{bridge}-{node.number}"
            self.run_ip("link", "add", port, "mtu", "9000", "type", "veth", "peer", "name", name, "netns", str(pid))
            self.run_ip("link", "set", port, "mtu", "9000", "master", bridge, "up")
        self.run_ip("route", "replace", node.pods, "via", node.address)

    def make_taps(self, node: layout.Node) -> list[str]:
        """Make a tap for each interface of a virtual machine, eth0 first, and return their names."""
        bridges = [layout.BRIDGE, *(name_bridge(rail) for rail in range(layout.RAILS))]
        for bridge in bridges:
            port = f"{bridge}-{node.number}"
            self.run_ip("tuntap", "add", port, "mode", "tap")
            mtu = "1500" if bridge == layout.BRIDGE else "9000"
            self.run_ip("link", "set", port, "mtu", mtu, "master", bridge, "up")
        self.run_ip("route", "replace", node.pods, "via", node.address)
        return [f"{bridge}-{node.number}" for bridge in bridges]

    def remove_taps(self, node: layout.Node) -> None:
        """Remove the taps of a virtual machine, and the route to its pods."""
        for link in json.loads(self.run_ip("-json", "link")):
            if link["ifname"].endswith(f"-{node.number}"):
                self.run_ip("link", "delete", link["ifname"])
        if self.run_ip("route", "show", node.pods):
            self.run_ip("route", "delete", node.pods)

    def run_ip(self, *arguments: str) -> str:
        """Run ip(8) in the namespace and return its output."""
        command = [*self.enter, "ip", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    async def close(self) -> None:
        """Let the keeper clean up; no process may be left in the site. The namespace goes with the last socket."""
        self._thread.shutdown()
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(b"ended")
        self._keeper.stdin.close()
        await waiting.wait(
            lambda: self._keeper.poll() is not None, seconds=90, describe="the site's cgroups and folder to be removed"
        )

    def _join(self) -> None:
        with pathlib.Path(self.path).open() as namespace:
            os.setns(namespace.fileno(), os.CLONE_NEWNET)

    def _lay_bridges(self) -> None:
        self.run_ip("link", "set", "lo", "up")
        self.run_ip("link", "add", layout.BRIDGE, "type", "bridge")
        self.run_ip("addr", "add", f"{layout.GATEWAY}/24", "dev", layout.BRIDGE)
        self.run_ip("link", "set", layout.BRIDGE, "up")
        # kube-proxy sends what the schedulers send to a Service on to a pod, but the kernel looks for a route first
        self.run_ip("route", "add", layout.SERVICES, "dev", layout.BRIDGE)
        for rail in range(layout.RAILS):
            self.run_ip("link", "add", name_bridge(rail), "type", "bridge")
            self.run_ip("link", "set", name_bridge(rail), "mtu", "9000", "up")
        forward = "/proc/sys/net/ipv4/ip_forward"
        subprocess.run([*self.enter, "sh", "-c", f"echo 1 > {forward}"], check=True)


def name_bridge(rail: int) -> str:
    """Return the name of a rail's bridge, the switch of the rail."""
    return f"rail{rail}"
