"""NCCL's list grammar: which devices NCCL_IB_HCA and which interfaces NCCL_SOCKET_IFNAME select.

Owns parsing and matching as NVIDIA/nccl src/misc/utils.cc (parseStringList, matchIfList), src/transport/net_ib/init.cc
and src/misc/socket.cc do it. Refuses to know whether a selection is a good one.
"""

import functools
import re
from collections.abc import Iterable

import msgspec

MOST_DEVICES = 32  # entries of NCCL_IB_HCA (init.cc, MAX_IB_DEVS)
MOST_INTERFACES = 16  # entries of NCCL_SOCKET_IFNAME (socket.cc, MAX_IFS)
LONGEST_DEVICE = 63  # characters of a device name (utils.h)
LONGEST_INTERFACE = 15  # IFNAMSIZ less its terminator
_ANY_PORT = -1
_LEADING_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]{1,9})", re.ASCII)  # C's atoi
_IGNORED = 1  # a NCCL_SOCKET_IFNAME of one character is as unset (socket.cc)
_LAST_CHOICES = ("docker", "lo", "virbr")  # taken only where nothing else is there (socket.cc)


class Entry(msgspec.Struct, frozen=True):
    """One name, and the port it is limited to (-1: any; 0 matches none)."""

    name: str
    port: int = _ANY_PORT

    def matches(self, name: str, port: int, *, exact: bool) -> bool:
        """True where a device or interface is meant."""
        named = name == self.name if exact else name.startswith(self.name)
        return named and (self.port == port or _ANY_PORT in (self.port, port))


class List(msgspec.Struct, frozen=True):
    """A value, parsed. No entries: everything is meant, so an excluding list without entries leaves nothing."""

    exclude: bool
    exact: bool
    entries: tuple[Entry, ...]

    def selects(self, device: str) -> bool:
        """True for `name` or `name:port` that NCCL would use."""
        name, port = _device(device)
        meant = not self.entries or any(entry.matches(name, port, exact=self.exact) for entry in self.entries)
        return meant != self.exclude


@functools.lru_cache(maxsize=256)
def read(value: str, most: int = MOST_DEVICES) -> List:
    """The list in a value: first ^, then =, then entries up to the limit, blanks kept as part of the names."""
    rest = value.removeprefix("^")
    entries = rest.removeprefix("=")
    found = [entry for item in entries.split(",") if (entry := _entry(item)) is not None]
    return List(value.startswith("^"), rest.startswith("="), tuple(found[:most]))


def selected(value: str, devices: Iterable[str]) -> tuple[str, ...]:
    """Those of the active `devices` (`mlx5_0:1`; without a port: any) that NCCL_IB_HCA selects, in their order."""
    wanted = read(value)
    return tuple(device for device in devices if wanted.selects(device))


def interfaces(value: str | None, present: Iterable[str]) -> tuple[str, ...]:
    """Those of the pod's interfaces that NCCL_SOCKET_IFNAME selects; None: NCCL's own choice."""
    there = tuple(present)
    if value is None or len(value) <= _IGNORED:
        return _own_choice(there)
    wanted = read(value, MOST_INTERFACES)
    return tuple(name for name in there if wanted.selects(name))[:MOST_INTERFACES]


def _own_choice(there: tuple[str, ...]) -> tuple[str, ...]:
    """Names in ib first, then all but the last choices, then those."""
    infiniband = tuple(name for name in there if name.startswith("ib"))
    if infiniband:
        return infiniband
    return tuple(name for name in there if not name.startswith(_LAST_CHOICES)) or there


def _entry(item: str) -> Entry | None:
    name, colon, rest = item.partition(":")
    if not name:
        return None
    return Entry(name, _atoi(rest) if colon else _ANY_PORT)


def _atoi(text: str) -> int:
    found = _LEADING_NUMBER.match(text)
    return int(found[1]) if found else 0


def _device(text: str) -> tuple[str, int]:
    name, colon, port = text.partition(":")
    return name, int(port) if colon and port.isdecimal() else _ANY_PORT
