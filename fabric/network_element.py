"""One object of the JSON form of Multus's annotation: its keys, their types, and the addresses Multus checks.

Owns multus-cni's NetworkSelectionElement (pkg/types/conf.go) and no more: what the names in it mean is `networks`.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

_HARDWARE_ADDRESS = re.compile(  # Go's net.ParseMAC: 6, 8 or 20 bytes in pairs, or in groups of four digits
    r"(?i)[0-9a-f]{2}(?P<mark>[:-])([0-9a-f]{2}(?P=mark)){4}(([0-9a-f]{2}(?P=mark)){2}|([0-9a-f]{2}(?P=mark)){14})?"
    r"[0-9a-f]{2}|([0-9a-f]{4}\.){2}([0-9a-f]{4}\.|([0-9a-f]{4}\.){7})?[0-9a-f]{4}"
)
_SHOWN = 64  # characters of a user's text that an error repeats


class _PortMapping(msgspec.Struct, frozen=True, rename="camel"):
    host_port: int | None = None
    container_port: int | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class _Bandwidth(msgspec.Struct, frozen=True, rename="camel"):
    ingress_rate: int | None = None
    ingress_burst: int | None = None
    egress_rate: int | None = None
    egress_burst: int | None = None


class Element(msgspec.Struct, frozen=True, rename="kebab"):
    """NetworkSelectionElement of multus-cni: the keys it knows and their types; null counts as absent."""

    name: str | None = None
    namespace: str | None = None
    interface: str | None = None
    interface_request: str | None = msgspec.field(default=None, name="interfaceRequest")  # before Multus 3.2
    ips: list[str | None] | None = None
    mac: str | None = None
    infiniband_guid: str | None = None
    port_mappings: list[_PortMapping | None] | None = msgspec.field(default=None, name="portMappings")
    bandwidth: _Bandwidth | None = None
    cni_args: dict[str, Any] | None = None
    default_route: list[str | None] | None = None
    ipam_claim_reference: str | None = None


# Go's decoder matches keys without regard to case
_ELEMENT_KEYS = {field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(Element)}


def read(tree: Mapping[str, Any]) -> Element:
    """The element as Multus decodes it, unknown keys dropped. Raises msgspec.ValidationError where a type is wrong."""
    known = {
        _ELEMENT_KEYS[key.lower()]: value
        for key, value in tree.items()
        if value is not None and key.lower() in _ELEMENT_KEYS
    }
    return msgspec.convert(known, Element)


def flaw(element: Element) -> str:
    """The first address Multus would refuse and what it should be, or ""."""
    for key, values, holds, form in _addresses(element):
        for value in values:
            if value and not holds(value):
                return f'"{key}" {value[:_SHOWN]!r} is not {form}'
    return ""


def _addresses(element: Element) -> tuple[tuple[str, Sequence[str | None], Callable[[str], bool], str], ...]:
    """The values that Multus checks beyond their type: key, values, check, and what they should be."""
    return (
        ("ips", element.ips or (), _is_address_or_prefix, "an IP address, with or without /prefix"),
        ("mac", (element.mac,), _is_hardware_address, "a MAC address, such as 02:00:00:00:00:01"),
        ("infiniband-guid", (element.infiniband_guid,), _is_hardware_address, "a GUID of 8 bytes separated by ':'"),
        ("default-route", element.default_route or (), _is_address, "an IP address"),
    )


def _is_hardware_address(text: str) -> bool:
    return _HARDWARE_ADDRESS.fullmatch(text) is not None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # Go's net.ParseIP takes no zone


def _is_address_or_prefix(text: str) -> bool:
    address, slash, length = text.partition("/")
    if not _is_address(address):
        return False
    bits = ipaddress.ip_address(address).max_prefixlen
    return not slash or (length.isascii() and length.isdigit() and len(length) <= 3 and int(length) <= bits)
