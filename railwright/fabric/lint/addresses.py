"""Address prefixes and families of RoCE rails, as NCCL reads them.

Owns what a value of NCCL_IB_ADDR_RANGE and NCCL_IB_ADDR_FAMILY means. Refuses to know rules.
"""

import functools
import ipaddress

from railwright.fabric.lint import model

RANGE = "NCCL_IB_ADDR_RANGE"
FAMILY = "NCCL_IB_ADDR_FAMILY"
SINCE = (2, 21)  # both came with the automatic choice of a GID (v2.21.5-1)
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@functools.lru_cache(maxsize=256)
def network(text: str) -> Network | None:
    """The prefix in a text; None for what NCCL ignores: no slash, no address, or no number of bits behind it."""
    _, slash, bits = text.partition("/")
    if not slash or not (bits.isascii() and bits.isdigit()) or "%" in text:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def wanted(ranks: model.Ranks) -> int | None:
    """4 or 6: the family NCCL looks for; None where it is not known. An unknown word counts as AF_INET."""
    setting = ranks.setting(FAMILY)
    if setting is None:
        return 4
    return None if setting.value is None else _version(setting.value)


def word(version: int) -> str:
    """The name of a family."""
    return "AF_INET6" if version == 6 else "AF_INET"


def rails(ranks: model.Ranks) -> tuple[Network, ...]:
    """The rails' subnets, as far as they are known."""
    found = (network(text) for text in ranks.site.rail_subnets or ())
    return tuple(each for each in found if each is not None)


def _version(family: str) -> int:
    return 6 if family == "AF_INET6" else 4
