"""Which entry of a RoCE port's GID table NCCL chooses by itself, since 2.21.5 (src/transport/net_ib/connect.cc).

Owns the walk over the table. Native InfiniBand, a fixed NCCL_IB_GID_INDEX and reading the table are not here.
"""

import ipaddress
from collections.abc import Sequence
from typing import Literal

import msgspec

Family = Literal["AF_INET", "AF_INET6"]
_MAPPED = "::ffff:0:0/96"  # an IPv4 address as a GID
_MAPPED_MULTICAST = "ff0e::ffff:0:0/96"


class Gid(msgspec.Struct, frozen=True):
    """An entry: an IPv4 or IPv6 address and its RoCE version, None where the entry is empty."""

    address: str
    version: int | None

    @property
    def raw(self) -> ipaddress.IPv6Address:
        """The 16 bytes of the table."""
        parsed = ipaddress.ip_address(self.address)
        return ipaddress.IPv6Address(f"::ffff:{parsed}") if parsed.version == 4 else ipaddress.IPv6Address(str(parsed))

    @property
    def family(self) -> Family:
        """What NCCL takes it for: IPv4 where it is mapped, else IPv6, the empty entry included."""
        mapped = any(self.raw in ipaddress.IPv6Network(net) for net in (_MAPPED, _MAPPED_MULTICAST))
        return "AF_INET" if mapped else "AF_INET6"

    @property
    def valid(self) -> bool:
        """Neither empty nor link-local."""
        return int(self.raw) != 0 and self.raw not in ipaddress.IPv6Network("fe80::/64")


def choose(
    table: Sequence[Gid], family: Family = "AF_INET", address_range: str | None = None, roce_version: int = 2
) -> int:
    """The index: from entry 0 upwards, first to the wanted family and range, then to the wanted version there.

    A range that is no CIDR of the family is ignored, as NCCL does.
    """
    inside = _range(family, address_range)
    chosen = 0
    for number, candidate in enumerate(table[1:], start=1):
        if (
            candidate.family == family
            and _within(candidate, inside)
            and _better(candidate, table[chosen], roce_version)
        ):
            chosen = number
    return chosen


def _better(candidate: Gid, held: Gid, roce_version: int) -> bool:
    if candidate.family != held.family:
        return True
    if not candidate.valid or candidate.version != roce_version:
        return False
    return held.version != roce_version or not held.valid


def _within(candidate: Gid, inside: ipaddress.IPv6Network | None) -> bool:
    return inside is None or candidate.raw in inside


def _range(family: Family, text: str | None) -> ipaddress.IPv6Network | None:
    if text is None or "/" not in text:
        return None
    try:
        net = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    if (net.version == 4) != (family == "AF_INET"):
        return None
    if net.version == 4:
        return ipaddress.IPv6Network((f"::ffff:{net.network_address}", 96 + net.prefixlen))
    return ipaddress.IPv6Network(str(net))
