"""Reads the CNI configuration of a network: its syntax, and the subnets of pods if its IPAM plugin states them there.

host-local has `subnet` and `ranges`, whereabouts `range` and `ipRanges`, static `addresses`. Others, such as dhcp and
IPAM pools of a controller, state none.
"""

import contextlib
import ipaddress
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

Subnet = ipaddress.IPv4Network | ipaddress.IPv6Network

_KEYS = frozenset({"subnet", "range", "address"})
_MAX_CONFIGURATION = 64 * 1024  # characters; a real one has a few hundred
_MAX_LEVELS = 6  # of lists and mappings below `ipam`
_MAX_SUBNETS = 64


class NetworkConfiguration(NamedTuple):
    """The subnets and the syntax error of `spec.config` of a NetworkAttachmentDefinition."""

    subnets: tuple[Subnet, ...] = ()
    error: str = (
        ""  # why it is no JSON object, with the position; Multus then attaches nothing, and the pod never starts
    )


def read_configuration(configuration: str) -> NetworkConfiguration:
    """Read `spec.config`. An empty one is valid: Multus then reads a file on the node."""
    if not configuration or len(configuration) > _MAX_CONFIGURATION:
        return NetworkConfiguration()
    try:
        tree = json.loads(configuration)
    except json.JSONDecodeError as error:
        return NetworkConfiguration(error=f"line {error.lineno}, column {error.colno}: {error.msg}")
    except (ValueError, RecursionError):
        return NetworkConfiguration()
    if not isinstance(tree, dict):
        return NetworkConfiguration(error="it is JSON, but no object in {}")
    return NetworkConfiguration(_read_subnets(tree))


def _read_subnets(tree: dict[str, Any]) -> tuple[Subnet, ...]:
    plugins = tree["plugins"] if isinstance(tree.get("plugins"), list) else [tree]
    ipams = [plugin.get("ipam") for plugin in plugins if isinstance(plugin, dict)]
    found: dict[Subnet, None] = {}
    for ipam in ipams:
        for text in _list_texts(ipam, _MAX_LEVELS):
            with contextlib.suppress(ValueError):
                # whereabouts also takes FIRST-LAST/PREFIX
                address, _, prefix = text.partition("/")
                found[ipaddress.ip_network(f"{address.partition('-')[0]}/{prefix}", strict=False)] = None
            if len(found) == _MAX_SUBNETS:
                return ()  # too many to be named; the others could contain the range
    return tuple(found)


def _list_texts(tree: Any, levels: int) -> Iterator[str]:
    """Yield the texts of subnets, ranges and addresses."""
    if levels and isinstance(tree, dict):
        for key, value in tree.items():
            if key in _KEYS and isinstance(value, str):
                yield value
            else:
                yield from _list_texts(value, levels - 1)
    elif levels and isinstance(tree, list):
        for item in tree:
            yield from _list_texts(item, levels - 1)
