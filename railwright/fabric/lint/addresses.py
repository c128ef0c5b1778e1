"""Parses NCCL_IB_ADDR_RANGE and NCCL_IB_ADDR_FAMILY as NCCL does."""

import functools
import ipaddress

from railwright.fabric.lint import rule_types

RANGE = "NCCL_IB_ADDR_RANGE"
FAMILY = "NCCL_IB_ADDR_FAMILY"
SINCE = (2, 21)  # first release with both variables and automatic choice of a GID (v2.21.5-1)
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@functools.lru_cache(maxsize=256)
def parse_range(text: str) -> Network | None:
    """Return an address prefix, or None for text that NCCL ignores: no address, no slash or no number of bits."""
    _, slash, bits = text.partition("/")
    if not slash or not (bits.isascii() and bits.isdigit()) or "%" in text:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def find_family(ctx: rule_types.RankContext) -> int | None:
    """Return the address family that NCCL uses, 4 or 6, or None if unknown. An invalid word counts as AF_INET."""
    setting = ctx.get_setting(FAMILY)
    if setting is None:
        return 4
    return None if setting.value is None else _parse_family(setting.value)


def format_family(version: int) -> str:
    """Return the value of NCCL_IB_ADDR_FAMILY for a family, 4 or 6."""
    return "AF_INET6" if version == 6 else "AF_INET"


def list_rail_subnets(ctx: rule_types.RankContext) -> tuple[Network, ...]:
    """Return the known subnets of the rails."""
    subnets = (parse_range(text) for text in ctx.fabric_context.rail_subnets or ())
    return tuple(subnet for subnet in subnets if subnet is not None)


def _parse_family(family: str) -> int:
    return 6 if family == "AF_INET6" else 4
