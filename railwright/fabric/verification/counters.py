"""Measures the bytes of each rank over each rail and over TCP, from two readings of its counters.

A rail that carried less than a hundredth of the busiest rail of its pod is idle. The counters of a device count all
pods that share it. An interface whose RDMA device is virtual (soft RoCE) counts as a rail and not as
TCP, because both count the same packets.

Where pods share a node's devices, the kernel hides the counters from the sysfs of a pod (`is_full_dev` in Linux
drivers/infiniband/core/sysfs.c), but gives those in `hw_counters` to anyone who asks by RDMA netlink.
"""

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from railwright.fabric import text
from railwright.fabric.verification import found_rails

# Names of (sent, received) below a port and the bytes of one unit; the first that a device has counts. InfiniBand and
# mlx5 (words of four bytes), ionic, EFA and bnxt_re, erdma; soft RoCE counts packets, taken as its largest MTU. By
# netlink, mlx5 counts the reads and writes that it has received; each is a packet or more.
_COUNTERS = (
    ("counters/port_xmit_data", "counters/port_rcv_data", 4),
    ("hw_counters/tx_rdma_ucast_bytes", "hw_counters/rx_rdma_ucast_bytes", 1),
    ("hw_counters/tx_bytes", "hw_counters/rx_bytes", 1),
    ("hw_counters/hw_tx_bytes_cnt", "hw_counters/hw_rx_bytes_cnt", 1),
    ("hw_counters/sent_pkts", "hw_counters/rcvd_pkts", 4096),
    ("hw_counters/rx_read_requests", "hw_counters/rx_write_requests", 4096),
)
# Prints all hw_counters of each port as lines of the same form. Numbers are those of include/uapi/rdma/rdma_netlink.h:
# commands 1 (devices) and 17 (statistics), attributes 1 (device's index), 2 (its name), 3 (port), 80 to 83 (counters).
_NETLINK = """
import os, socket, struct
link = socket.socket(16, socket.SOCK_RAW, 20)
def ask(command, flags, *numbers):
    body = b"".join(struct.pack("HHI", 8, *number) for number in numbers)
    link.send(struct.pack("IHHII", 16 + len(body), 5 << 10 | command, flags, 0, 0) + body)
def split(message, place):
    while place < len(message):
        size, kind = struct.unpack_from("HH", message, place)
        yield kind & 0x3fff, message[place + 4:place + size]
        place += size + 3 & ~3
def receive():
    while True:
        answer = link.recv(1 << 17)
        while answer:
            size, kind = struct.unpack_from("IH", answer)
            if kind in (2, 3):
                return
            yield answer[:size]
            answer = answer[size:]
ask(1, 0x301)
for index, name in [(dict(split(m, 16))[1], dict(split(m, 16))[2][:-1].decode()) for m in receive()]:
    for port in os.listdir(f"/sys/class/infiniband/{name}/ports"):
        ask(17, 5, (1, struct.unpack("I", index)[0]), (3, int(port)))
        for message in receive():
            for entry in split(dict(split(message, 16))[80], 0):
                pair = dict(split(entry[1], 0))
                counter, (value,) = pair[82][:-1].decode(), struct.unpack("Q", pair[83])
                print(f"{name}/ports/{port} hw_counters/{counter} {value}")
"""
_SCRIPT = """
cd /sys/class/infiniband && for port in */ports/*; do
  for name in NAMES; do
    [ -r "$port/$name" ] && read -r value < "$port/$name" && echo "$port $name $value" && found=1
  done
done
[ "$found" ] || python3 -c '$NETLINK' 2> /dev/null
echo uptime; cat /proc/uptime
echo net; cat /proc/net/dev
echo rails; cat /run/railwright/rails.json 2> /dev/null || true
"""
# Only what every shell has built in, and cat, before python3: an image may have little else.
_NAMES = " ".join(name for row in _COUNTERS for name in row[:2])
COMMAND = ("sh", "-c", _SCRIPT.replace("$NETLINK", _NETLINK).replace("NAMES", _NAMES))
RDMA, PARTIAL, TCP, UNKNOWN = "rdma", "partial", "tcp", "unknown"
_NOISE_BYTES = 1 << 20  # bytes: less in both readings of all pods is the noise of an idle job
_MAX_DIGITS = 20  # of a 64-bit number
_MAX_NAMES = 3  # pods or rails in a line


class Reading(msgspec.Struct, frozen=True):
    """The counters of one rank at one moment."""

    uptime: int = 0  # seconds
    ports: Mapping[str, tuple[int, int]] = {}  # bytes sent and received, by DEVICE:PORT
    interfaces: Mapping[str, int] = {}  # bytes sent and received
    rails: tuple[found_rails.FoundRail, ...] = ()  # () without a preflight


class Traffic(msgspec.Struct, frozen=True):
    """The bytes of a rail of a pod between two readings."""

    pod: str
    rail: str
    device: str  # "" if the preflight found none
    sent: int
    received: int
    idle: bool = False

    @property
    def total(self) -> int:
        """The bytes in both directions."""
        return self.sent + self.received


class Report(msgspec.Struct, frozen=True):
    """Traffic of a job between two readings. `tcp` has the bytes of each pod over interfaces that are not rails."""

    state: str
    line: str
    seconds: int
    rails: tuple[Traffic, ...]
    tcp: Mapping[str, int]


def parse_output(output: str) -> Reading:
    """Return the counters of a rank from the output of COMMAND. Skip lines of any other form."""
    sections = re.split(r"^(?:uptime|net|rails)$", output, maxsplit=3, flags=re.MULTILINE)
    ports, uptime, net, rails = (*sections, "", "", "")[:4]
    counted: dict[str, dict[str, int]] = {}
    for place, name, value in _split_lines(ports, 3):
        counted.setdefault(place.replace("/ports/", ":"), {})[name] = _parse_number(value)
    return Reading(
        uptime=_parse_number(uptime.partition(".")[0].strip()),
        ports={port: _choose_counters(counters) for port, counters in counted.items()},
        interfaces={
            words[0].removesuffix(":"): _parse_number(words[1]) + _parse_number(words[9])
            for words in _split_lines(net.replace(":", ": "), 17)  # bytes received first, bytes sent ninth
        },
        rails=found_rails.parse_rails(rails).rails,
    )


def _split_lines(lines: str, columns: int) -> list[list[str]]:
    return [words for words in map(str.split, lines.splitlines()) if len(words) == columns]


def _parse_number(value: str) -> int:
    return int(value) if value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS else 0


def _choose_counters(counters: Mapping[str, int]) -> tuple[int, int]:
    """Return the bytes that a port sent and received, from the first pair of `_COUNTERS` that the port has."""
    pairs = [(sent, received, unit) for sent, received, unit in _COUNTERS if sent in counters and received in counters]
    return next(((counters[sent] * unit, counters[received] * unit) for sent, received, unit in pairs), (0, 0))


def assess_traffic(
    readings: Mapping[str, tuple[Reading, Reading]], expected: Mapping[str, int], unread: Collection[str] = ()
) -> Report:
    """Return the report on the traffic between two readings of each pod.

    `expected` is the number of rails of pods that have no rails.json; `unread` are pods that could not be read.
    """
    rails = tuple(
        traffic
        for pod, (before, after) in readings.items()
        for traffic in _measure_pod(pod, before, after, expected.get(pod))
    )
    tcp = {pod: _measure_tcp(before, after) for pod, (before, after) in readings.items()}
    seconds = max((after.uptime - before.uptime for before, after in readings.values()), default=0)
    state, line = _summarize(rails, sum(tcp.values()), f"in {seconds} s by {text.format_count(len(readings), 'pod')}")
    if unread and not readings:
        line = "cannot tell: no counters could be read"
    if unread:
        state = UNKNOWN if state == RDMA else state
        line += f"; not read: {text.join_first(unread, _MAX_NAMES)}"
    return Report(state, line, seconds, rails, tcp)


def _summarize(rails: Sequence[Traffic], tcp: int, span: str) -> tuple[str, str]:
    """Return a job's state, and the line that reports it. `span` says over how many seconds and by how many pods."""
    over_tcp = f"{format_bytes(tcp)} over TCP"
    moved = sum(traffic.total for traffic in rails)
    if not rails:
        fix = "if pods share a node's devices, use an image with python3, which can read the counters"
        return UNKNOWN, f"cannot tell: no pod can read counters of an RDMA device; {over_tcp} {span}; {fix}"
    if moved < _NOISE_BYTES and tcp >= _NOISE_BYTES:
        return TCP, f"TCP, not RDMA: no rail carried data, and {over_tcp} {span}"
    if moved < _NOISE_BYTES:
        fix = "measure while the job trains, for longer with --seconds"
        return UNKNOWN, f"cannot tell: no rail carried data, and {over_tcp} {span}; {fix}"
    names = {traffic.rail for traffic in rails}
    idle = [traffic for traffic in rails if traffic.idle]
    active = len(names - {traffic.rail for traffic in idle})
    line = f"RDMA on {text.format_count(len(names), 'rail', part=active)}: {format_bytes(moved)} {span}, {over_tcp}"
    if not idle:
        return RDMA, line
    which = text.join_first(
        [f"{traffic.rail} ({traffic.device or 'no device was found'}) of {traffic.pod}" for traffic in idle], _MAX_NAMES
    )
    return PARTIAL, f"{line}; idle: {which}"


def _measure_pod(pod: str, before: Reading, after: Reading, expected: int | None) -> list[Traffic]:
    """Return the traffic of a pod's rails. Without rails.json, the busiest ports count as its `expected` rails."""
    named = [(rail.name, f"{rail.device or ''}:{rail.port or ''}") for rail in after.rails]
    rows = []
    for name, port in named or [(port, port) for port in after.ports]:
        new, old = after.ports.get(port, (0, 0)), before.ports.get(port, (0, 0))
        sent, received = (max(0, later - earlier) for later, earlier in zip(new, old, strict=True))
        rows.append(Traffic(pod, name, port.partition(":")[0], sent, received))
    busiest = max((row.total for row in rows), default=0)
    rows = [msgspec.structs.replace(row, idle=row.total * 100 <= busiest) for row in rows]
    if named:
        return rows
    by_total = sorted(rows, key=lambda row: -row.total)
    return by_total[:expected] if expected is not None else [row for row in by_total if not row.idle]


def _measure_tcp(before: Reading, after: Reading) -> int:
    """Return the bytes over interfaces other than the loopback one and those of virtual RDMA devices."""
    virtual = {rail.interface for rail in after.rails if rail.device and not rail.pci}
    return sum(
        max(0, count - before.interfaces.get(name, 0))
        for name, count in after.interfaces.items()
        if name != "lo" and name not in virtual
    )


def format_bytes(count: int) -> str:
    """Return a number of bytes as text, such as 3.1 GB."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
