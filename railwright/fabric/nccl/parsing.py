"""Parses values of NCCL's variables as NCCL does: numbers, and lists of devices, interfaces, algorithms or protocols.

Numbers: NVIDIA/nccl src/misc/param.cc (strtoll with base 0, observed on four releases). Up to 2.31 NCCL read text
without digits as 0. The catalogue lists the variables that are parsed this way. Lists: src/misc/utils.cc
(parseStringList, matchIfList), src/transport/net_ib/init.cc and src/misc/socket.cc.
"""

import functools
import re
from collections.abc import Iterable

import msgspec

# --- numbers ----------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)  # C's strtoll
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_MAX_DIGITS = 25  # 64 bits have 22 octal digits; longer text always overflows


def parse_number(text: str) -> int | None:
    """Return the number that NCCL 2.32 and newer read from `text`.

    None: NCCL keeps its default, because it rejects the text, or treats an empty text as unset.
    """
    match = _NUMBER.match(text)
    if match is None:
        return None
    sign, digits = match.groups()
    base = 10 if digits[0] != "0" else 16 if digits[1:2] in ("x", "X") else 8
    significant = digits.lstrip("0xX") or "0"
    if len(significant) > _MAX_DIGITS:
        return None
    number = int(f"{sign}{significant}", base)
    return number if -(1 << 63) <= number < 1 << 63 else None


def is_unambiguous(text: str) -> bool:
    """True for decimal digits without a leading zero, which every release reads as the same number."""
    return _DECIMAL.fullmatch(text) is not None


# --- lists ------------------------------------------------------------------------------------------------

MAX_DEVICES = 32  # entries of NCCL_IB_HCA (init.cc, MAX_IB_DEVS)
MAX_INTERFACES = 16  # entries of NCCL_SOCKET_IFNAME (socket.cc, MAX_IFS)
MAX_DEVICE_LENGTH = 63  # characters of a device name (utils.h)
MAX_INTERFACE_LENGTH = 15  # characters: IFNAMSIZ without its terminator
_ANY_PORT = -1
_LEADING_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?[0-9]{1,9})", re.ASCII)  # C's atoi
_MAX_IGNORED_LENGTH = 1  # NCCL ignores a NCCL_SOCKET_IFNAME of one character (socket.cc)
_LAST_CHOICES = ("docker", "lo", "virbr")  # NCCL uses these only if the pod has no other interface (socket.cc)


class Entry(msgspec.Struct, frozen=True):
    """A name and the port that it is limited to (-1: any port; 0 matches none)."""

    name: str
    port: int = _ANY_PORT

    def matches(self, name: str, port: int, *, exact: bool) -> bool:
        """True if the entry matches a device or interface. Without `exact`, the entry is a prefix."""
        is_same_name = name == self.name if exact else name.startswith(self.name)
        return is_same_name and (self.port == port or _ANY_PORT in (self.port, port))


class NameList(msgspec.Struct, frozen=True):
    """A parsed value. A list without entries matches every name, so with `exclude` it selects none."""

    exclude: bool
    exact: bool
    entries: tuple[Entry, ...]

    def selects(self, device: str) -> bool:
        """True if NCCL would use the device, given as `name` or `name:port`."""
        name, _, digits = device.partition(":")
        port = int(digits) if digits.isdecimal() else _ANY_PORT
        is_listed = not self.entries or any(entry.matches(name, port, exact=self.exact) for entry in self.entries)
        return is_listed != self.exclude


@functools.lru_cache(maxsize=256)
def parse_list(value: str, max_entries: int = MAX_DEVICES) -> NameList:
    """Return the list in a value: an optional `^`, an optional `=`, then names. Blanks are part of the names."""
    rest = value.removeprefix("^")
    items = rest.removeprefix("=")
    entries = [entry for item in items.split(",") if (entry := _parse_entry(item)) is not None]
    return NameList(value.startswith("^"), rest.startswith("="), tuple(entries[:max_entries]))


def select_interfaces(value: str | None, interfaces: Iterable[str]) -> tuple[str, ...]:
    """Return the pod's `interfaces` that NCCL_SOCKET_IFNAME selects; NCCL's own choice if `value` is None."""
    pod_interfaces = tuple(interfaces)
    if value is None or len(value) <= _MAX_IGNORED_LENGTH:
        return _select_default_interfaces(pod_interfaces)
    names = parse_list(value, MAX_INTERFACES)
    return tuple([interface for interface in pod_interfaces if names.selects(interface)][:MAX_INTERFACES])


def _select_default_interfaces(interfaces: tuple[str, ...]) -> tuple[str, ...]:
    """Return the interfaces named ib*, otherwise those without a prefix in _LAST_CHOICES, otherwise all."""
    infiniband = tuple(interface for interface in interfaces if interface.startswith("ib"))
    if infiniband:
        return infiniband
    return tuple(interface for interface in interfaces if not interface.startswith(_LAST_CHOICES)) or interfaces


def _parse_entry(item: str) -> Entry | None:
    name, colon, rest = item.partition(":")
    if not name:
        return None
    number = _LEADING_NUMBER.match(rest)
    return Entry(name, _ANY_PORT if not colon else int(number[1]) if number else 0)
