"""Chooses an entry of a RoCE port's GID table as NCCL 2.21.5 and newer does (src/transport/net_ib/connect.cc).

NCCL does not make this choice on native InfiniBand or if NCCL_IB_GID_INDEX is set.
"""

import ipaddress
from collections.abc import Sequence
from typing import Literal

import msgspec

Family = Literal["AF_INET", "AF_INET6"]
_MAPPED = "::ffff:0:0/96"  # GIDs that are IPv4 addresses
_MAPPED_MULTICAST = "ff0e::ffff:0:0/96"


class Gid(msgspec.Struct, frozen=True):
    """An entry of the table: an IPv4 or IPv6 address and its RoCE version (None for an empty entry)."""

    address: str
    version: int | None

    @property
    def raw(self) -> ipaddress.IPv6Address:
        """The 16 bytes in the table."""
        parsed = ipaddress.ip_address(self.address)
        return ipaddress.IPv6Address(f"::ffff:{parsed}") if parsed.version == 4 else ipaddress.IPv6Address(str(parsed))

    @property
    def family(self) -> Family:
        """The address family by NCCL's rules: IPv4 if mapped, otherwise IPv6. An empty entry counts as IPv6."""
        is_mapped = any(self.raw in ipaddress.IPv6Network(network) for network in (_MAPPED, _MAPPED_MULTICAST))
        return "AF_INET" if is_mapped else "AF_INET6"

    @property
    def valid(self) -> bool:
        """True if the entry is neither empty nor link-local."""
        return int(self.raw) != 0 and self.raw not in ipaddress.IPv6Network("fe80::/64")


def choose(
    table: Sequence[Gid], family: Family = "AF_INET", address_range: str | None = None, roce_version: int = 2
) -> int:
    """Return the index of the entry that NCCL uses.

    NCCL scans upwards from entry 0. It prefers `family` and `address_range`, then `roce_version`. Like NCCL, ignore a
    range that is not a CIDR of the family.
    """
    network = _parse_range(family, address_range)
    best_index = 0
    for index, candidate in enumerate(table[1:], start=1):
        if (
            candidate.family == family
            and _is_within(candidate, network)
            and _is_better(candidate, table[best_index], roce_version)
        ):
            best_index = index
    return best_index


def _is_better(candidate: Gid, current: Gid, roce_version: int) -> bool:
    if candidate.family != current.family:
        return True
    if not candidate.valid or candidate.version != roce_version:
        return False
    return current.version != roce_version or not current.valid


def _is_within(candidate: Gid, network: ipaddress.IPv6Network | None) -> bool:
    return network is None or candidate.raw in network


def _parse_range(family: Family, text: str | None) -> ipaddress.IPv6Network | None:
    if text is None or "/" not in text:
        return None
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    if (network.version == 4) != (family == "AF_INET"):
        return None
    if network.version == 4:
        return ipaddress.IPv6Network((f"::ffff:{network.network_address}", 96 + network.prefixlen))
    return ipaddress.IPv6Network(str(network))
