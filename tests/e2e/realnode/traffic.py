"""Bytes between pods over RDMA devices: the programs that send them, and the counters that show where they went.

The counters are those of the nodes' devices; they count packets of every pod.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from plane import waiting

from realnode import layout, ranks, virtual_node

MTU = 4096  # the largest of RDMA
MESSAGE, MESSAGES, PORT = 65536, 50, 18515
PACKETS = MESSAGE * MESSAGES // MTU
SEGMENTS = 200  # of TCP, by which the programs meet; over TCP, the bytes of each rail alone would need 2,000
NOISE = 20  # packets of a rail that carries nothing
SLEEP = ("sleep", "100000")
_COUNTERS = ("sent_pkts", "rcvd_pkts")

Nodes = Mapping[str, virtual_node.VirtualNode]
FindGid = Callable[[ranks.Rank, str, str], Awaitable[int]]


async def count_packets(node: virtual_node.VirtualNode) -> dict[str, int]:
    """Return the packets that each RDMA device of a node has sent and received."""
    folders = [f"/sys/class/infiniband/{layout.name_device(rail)}/ports/1/hw_counters" for rail in range(layout.RAILS)]
    output = await node.run("cat", *(f"{folder}/{name}" for folder in folders for name in _COUNTERS))
    counts = [int(line) for line in output.split()]
    return {layout.name_device(rail): sum(counts[2 * rail : 2 * rail + 2]) for rail in range(layout.RAILS)}


async def count_all_packets(nodes: Nodes) -> dict[str, dict[str, int]]:
    """Return the packets of each device by node."""
    return {name: await count_packets(node) for name, node in nodes.items()}


async def count_segments(rank: ranks.Rank) -> int:
    """Return the number of TCP segments that a pod has sent."""
    snmp = await rank.run("cat", "/proc/net/snmp")
    names, values = (line.split() for line in re.findall(r"^Tcp: .*", snmp, re.MULTILINE))
    return int(dict(zip(names, values, strict=True))["OutSegs"])


async def count_bytes(rank: ranks.Rank) -> dict[str, int]:
    """Return the bytes that each network interface of a pod has sent."""
    table = await rank.run("cat", "/proc/net/dev")
    return {name: int(sent) for name, sent in re.findall(r"^ *(\w+):(?: +\d+){8} +(\d+)", table, re.MULTILINE)}


async def find_gid(rank: ranks.Rank, device: str, address: str) -> int:
    """Return the GID index of an address on a device, once an earlier pod's entry of the address is removed."""
    first, second, third, fourth = map(int, address.split("."))
    gid = f"ffff:{first:02x}{second:02x}:{third:02x}{fourth:02x}"

    async def find_entry() -> str:
        files = await rank.run("sh", "-c", f"grep -rl {gid} /sys/class/infiniband/{device}/ports/1/gids || true")
        (file,) = files.split() if files.count("\n") == 1 else ("",)
        return file.rpartition("/")[2]

    return int(await waiting.wait(find_entry, seconds=300, describe=f"one GID of {address} on {device}"))


async def read_gid(rank: ranks.Rank, device: str, address: str) -> int:
    """Return the GID index that railwright has found for the rail of a device."""
    found = json.loads(await rank.run("cat", "/run/railwright/rails.json"))["rails"]
    (rail,) = (rail for rail in found if rail["device"] == device)
    assert rail["address"] == address, rail
    return int(rail["gidIndex"])


def write(device: str, index: int, target: str = "", *options: str, port: int = PORT) -> str:
    """Return a command of a shell that writes to `target`, or waits for one that does; timeouts fit slow nodes."""
    words = ["-F", "-d", device, "-x", index, "-m", MTU, "-s", MESSAGE, "-p", port, "-u", 18, *options, target]
    return f"ib_write_bw {' '.join(map(str, words))} 2>&1"


async def wait_listening(rank: ranks.Rank, *ports: int) -> None:
    """Wait until programs of the pod listen on these ports."""

    async def listen() -> bool:
        sockets = await rank.run("cat", "/proc/net/tcp", "/proc/net/tcp6")
        return all(re.search(rf":{port:04X} \S+ 0A ", sockets) for port in ports)

    await waiting.wait(listen, seconds=300, describe=f"programs of {rank.pod} to listen on {ports}")


async def get_pod_address(rank: ranks.Rank) -> str:
    """Return the address of eth0, for the programs' connection."""
    return (await rank.list_addresses())["eth0"].partition("/")[0]


async def run_pair(client: ranks.Rank, server: ranks.Rank, command: Callable[[ranks.Rank, str], str], port: int) -> str:
    """Run the server's command, then the client's with the server's address; return the client's output, then the
    server's.
    """
    serving = asyncio.create_task(server.run("sh", "-c", command(server, "")))
    try:
        await wait_listening(server, port)
        output = await client.run("sh", "-c", command(client, await get_pod_address(server)))
        return output + await serving
    finally:
        serving.cancel()


def read_gids(output: str) -> list[str]:
    """Return the IPv4 addresses of the GIDs that perftest prints: the own one, then the other's."""
    gids = re.findall(r"^ GID: (\S+)", output, re.MULTILINE)
    return [".".join(str(int(part)) for part in gid.split(":")[-4:]) for gid in gids]


async def write_on_each_rail(
    nodes: Nodes, client: ranks.Rank, server: ranks.Rank, subnets: Sequence[str], get_gid: FindGid = find_gid
) -> dict[ranks.Rank, set[int]]:
    """Write on each rail in turn, and check what carried the bytes; return the GID indexes that each rank used."""
    addresses = {rank: await rank.check_rails(subnets) for rank in (client, server)}
    segments = {rank: await count_segments(rank) for rank in (client, server)}
    used: dict[ranks.Rank, set[int]] = {client: set(), server: set()}
    for rail in range(layout.RAILS):
        device, interface = layout.name_device(rail), f"net{rail + 1}"
        indexes = {rank: await get_gid(rank, device, addresses[rank][interface]) for rank in (client, server)}

        def command(
            rank: ranks.Rank, target: str, device: str = device, indexes: Mapping[ranks.Rank, int] = indexes
        ) -> str:
            return write(device, indexes[rank], target, "-n", str(MESSAGES))

        before = await count_all_packets(nodes)
        output = await run_pair(client, server, command, PORT)
        assert re.findall(r"Mtu\s+: (\d+)\[B\]", output) == [str(MTU)] * 2, output
        own, others = addresses[client][interface], addresses[server][interface]
        assert read_gids(output) == [own, others, others, own], output
        print(device, list(indexes.values()), await check_packets(nodes, before, {device: PACKETS}))
        for rank in (client, server):
            used[rank].add(indexes[rank])
    for rank in (client, server):
        assert await count_segments(rank) - segments[rank] < SEGMENTS
    return used


async def check_packets(
    nodes: Nodes, before: Mapping[str, Mapping[str, int]], least: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Check that each named device has carried this number of packets since `before` on every node, and no other any.

    Returns the packets of each device by node.
    """
    carried = {}
    for name, counts in (await count_all_packets(nodes)).items():
        packets = {device: count - before[name][device] for device, count in counts.items()}
        assert all(packets[device] >= count for device, count in least.items()), f"{name}: {packets}, not {least}"
        others = {device: count for device, count in packets.items() if device not in least}
        assert max(others.values(), default=0) <= NOISE, f"{name}: {packets}, wanted {least} and no others"
        carried[name] = packets
    return carried


@contextlib.asynccontextmanager
async def cut(node: virtual_node.VirtualNode, rail: int) -> AsyncIterator[None]:
    """Take the link of a rail from a node for the length of a `with` block."""
    name = layout.name_interface(rail)
    await node.run("ip", "link", "set", name, "down")
    try:
        yield
    finally:
        await node.run("ip", "link", "set", name, "up")


@contextlib.asynccontextmanager
async def keep_writing(
    nodes: Nodes, client: ranks.Rank, server: ranks.Rank, devices: Sequence[str]
) -> AsyncIterator[None]:
    """Write on these devices until the end of a `with` block, which begins when each has carried bytes."""
    before = await count_all_packets(nodes)
    ports = [PORT + number for number in range(len(devices))]
    await start(server, *await _list_writes(server, devices, ports, ""))
    await wait_listening(server, *ports)
    await start(client, *await _list_writes(client, devices, ports, await get_pod_address(server)))

    async def carry() -> bool:
        await check_packets(nodes, before, dict.fromkeys(devices, PACKETS))
        return True

    try:
        await waiting.wait(carry, seconds=300, describe=f"bytes on {devices}")
        yield
    finally:
        await end(client, server)


async def _list_writes(rank: ranks.Rank, devices: Sequence[str], ports: Sequence[int], target: str) -> list[str]:
    """Return commands that write to `target`, or wait for one, on each device until they are ended."""
    addresses = await rank.list_addresses()
    commands = []
    for device, port in zip(devices, ports, strict=True):
        address = addresses[f"net{int(device.rpartition('_')[2]) + 1}"].partition("/")[0]
        index = await find_gid(rank, device, address)
        commands.append(write(device, index, target, "--run_infinitely", "-t", "8", port=port))
    return commands


async def start(rank: ranks.Rank, *commands: str) -> None:
    """Start programs in a container; `end` ends them."""
    lines = [f"{command.removesuffix(' 2>&1')} > /dev/null 2>&1 < /dev/null & echo $!" for command in commands]
    await rank.run("sh", "-c", f"({'; '.join(lines)}) > /tmp/pids")


async def end(*pod_ranks: ranks.Rank) -> None:
    """End the programs that `start` has started."""
    for rank in pod_ranks:
        await rank.run("sh", "-c", "kill $(cat /tmp/pids)")
