"""Decodes the JSON form of Multus's networks annotation as Go's encoding/json does, and validates it as Multus does.

The objects are multus-cni's NetworkSelectionElement (pkg/types/types.go). Go ignores the case of keys, and checks every
occurrence of a key that is written twice. Python's own decoder keeps such keys; msgspec drops them.
"""

import difflib
import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

_HARDWARE_ADDRESS = re.compile(  # Go's net.ParseMAC: 6, 8 or 20 bytes in pairs, or in groups of four digits
    r"(?i)[0-9a-f]{2}(?P<mark>[:-])([0-9a-f]{2}(?P=mark)){4}(([0-9a-f]{2}(?P=mark)){2}|([0-9a-f]{2}(?P=mark)){14})?"
    r"[0-9a-f]{2}|([0-9a-f]{4}\.){2}([0-9a-f]{4}\.|([0-9a-f]{4}\.){7})?[0-9a-f]{4}"
)
_MAX_QUOTED = 64  # characters of a user's text in an error message
_INT64 = range(-(2**63), 2**63)
_MAX_INT_LENGTH = 20  # characters of the longest 64-bit number, with its sign
_LONG_S = "\u017f"  # Go folds this letter and the Kelvin sign into ASCII; lower() does so for the Kelvin sign only
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class InvalidElementError(ValueError):
    """Multus would reject the object. The message names the key, its value and a valid form."""


class Element(msgspec.Struct, frozen=True):
    """The fields of multus-cni's NetworkSelectionElement that railwright reads."""

    name: str = ""
    namespace: str = ""
    interface: str = ""  # the older key interfaceRequest if `interface` is not set
    gateways: tuple[str, ...] | None = None  # default-route; None if absent
    unknown: str | None = None  # the first key that Multus does not know, and ignores


class _Object(tuple[tuple[str, Any], ...]):
    """The pairs of a JSON object, in order. A key may occur more than once."""

    __slots__ = ()


class _Number(str):
    """The text of a number, because Go distinguishes 1, 1.0 and 1e0."""

    __slots__ = ()


def decode(text: str) -> Any:
    """Return the JSON value, with objects and numbers as written. Raises ValueError and RecursionError."""
    return _DECODER.decode(text)


def read(tree: Any) -> Element:
    """Return an object of the array. Raises InvalidElementError if Multus would reject it."""
    if not isinstance(tree, _Object):
        raise InvalidElementError('is not an object; write {"name": "...", "namespace": "..."}')
    fields = _read_fields(tree, _ELEMENT, "")
    for key, form, is_valid in _ADDRESSES:
        for value in _convert_to_list(fields.get(key)):
            if not is_valid(value):
                raise InvalidElementError(f'"{key}" {value[:_MAX_QUOTED]!r} is not {form}')
    gateways = fields.get("default-route")
    return Element(
        name=fields.get("name", ""),
        namespace=fields.get("namespace", ""),
        interface=fields.get("interface", "") or fields.get("interfaceRequest", ""),
        gateways=None if gateways is None else tuple(gateways),
        unknown=next((key for key, _ in tree if _fold(key) not in _ELEMENT), None),
    )


def suggest_key(key: str) -> str:
    """Return the key that is probably meant by one that Multus does not know, "" if none is like it."""
    folded = key[:_MAX_QUOTED].lower().replace("_", "-")
    similar = [name for name in _KEYS if len(folded) > 1 and (folded in name.lower() or name.lower() in folded)]
    close = [*difflib.get_close_matches(folded, _KEYS, n=1, cutoff=0.7), *sorted(similar, key=len, reverse=True)]
    return close[0] if close else ""


# --- Go's reading of types --------------------------------------------------------------------------------

_Check = Callable[[Any, str], Any]  # (value, path) -> the value as Go stores it; raises InvalidElementError


def _read_fields(tree: _Object, checks: Mapping[str, tuple[str, _Check]], where: str) -> dict[str, Any]:
    """Return the known keys of an object. All occurrences of a key are checked, and the last one counts.

    null counts as absent. After an earlier value, it empties a list or an object and does not change a string.
    """
    fields: dict[str, Any] = {}
    for key, value in tree:
        row = checks.get(_fold(key))
        if row is None:
            continue
        name, check = row
        if value is not None:
            fields[name] = check(value, f"{where}{name}")
        elif check is not _check_string:
            fields.pop(name, None)
    return fields


def _fold(key: str) -> str:
    """Return a key as Go compares it."""
    return key.lower().replace(_LONG_S, "s")


def _check_string(value: Any, where: str) -> str:
    if not isinstance(value, str) or isinstance(value, _Number):
        raise _build_type_error(where, "a string", value)
    return LONE_SURROGATE.sub("\ufffd", value)  # Go replaces a lone surrogate


def _check_integer(value: Any, where: str) -> int:
    digits = value if isinstance(value, _Number) else _Number("x")
    if len(digits) > _MAX_INT_LENGTH or not digits.lstrip("-").isdigit() or int(digits) not in _INT64:
        raise _build_type_error(where, "a whole number", value)
    return int(digits)


def _check_any(value: Any, where: str) -> Any:
    """Check a value of any type. Numbers must fit a float64."""
    if isinstance(value, _Number) and float(value) in {float("inf"), float("-inf")}:
        raise _build_type_error(where, "a number Multus can hold", value)
    if isinstance(value, list | _Object):
        for item in value:
            _check_any(item[1] if isinstance(value, _Object) else item, where)
    return value


def _check_mapping(value: Any, where: str) -> Any:
    if not isinstance(value, _Object):
        raise _build_type_error(where, "an object", value)
    return _check_any(value, where)


def _build_struct_check(**checks: _Check) -> _Check:
    table = {name.lower(): (name, check) for name, check in checks.items()}

    def check(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, _Object):
            raise _build_type_error(where, "an object", value)
        return _read_fields(value, table, f"{where}.")

    return check


def _build_list_check(check_item: _Check, null_value: Any) -> _Check:
    """Return a check of a list. null in the list becomes `null_value`."""

    def check(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise _build_type_error(where, "a list", value)
        return [
            null_value if item is None else check_item(item, f"{where}[{index}]") for index, item in enumerate(value)
        ]

    return check


_KEYS: Mapping[str, _Check] = {
    "name": _check_string,
    "namespace": _check_string,
    "interface": _check_string,
    "interfaceRequest": _check_string,  # before Multus 3.2
    "ips": _build_list_check(_check_string, ""),
    "mac": _check_string,
    "infiniband-guid": _check_string,
    "portMappings": _build_list_check(
        _build_struct_check(
            hostPort=_check_integer, containerPort=_check_integer, protocol=_check_string, hostIP=_check_string
        ),
        None,
    ),
    "bandwidth": _build_struct_check(
        ingressRate=_check_integer, ingressBurst=_check_integer, egressRate=_check_integer, egressBurst=_check_integer
    ),
    "deviceID": _check_string,
    "cni-args": _check_mapping,
    "default-route": _build_list_check(_check_string, ""),
    "ipam-claim-reference": _check_string,  # Multus releases after 4.2.3
}
_ELEMENT = {name.lower(): (name, check) for name, check in _KEYS.items()}


def _build_type_error(where: str, expected: str, value: Any) -> InvalidElementError:
    return InvalidElementError(f'has a value of the wrong type: "{where}" is {_describe(value)} and must be {expected}')


def _describe(value: Any) -> str:
    if isinstance(value, _Number):
        return f"the number {value[:_MAX_QUOTED]}"
    names: Mapping[type, str] = {str: "a string", bool: "a boolean", list: "a list", _Object: "an object"}
    return names.get(type(value), "null")


def _reject_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Object, parse_int=_Number, parse_float=_Number, parse_constant=_reject_constant
)


# --- addresses --------------------------------------------------------------------------------------------


def list_families(gateways: Iterable[str]) -> tuple[str, ...]:
    """Return "IPv4" or "IPv6" for each gateway by Multus's rules: an empty one is IPv6, a mapped one IPv4."""
    return tuple("IPv4" if "." in item or _is_mapped(item) else "IPv6" for item in gateways)


def _is_mapped(text: str) -> bool:
    return bool(text) and getattr(ipaddress.ip_address(text), "ipv4_mapped", None) is not None


def _convert_to_list(value: Any) -> Sequence[str]:
    if isinstance(value, list):
        return value
    return (value,) if value else ()  # Multus ignores an empty mac or guid


def _is_hardware_address(text: str) -> bool:
    return _HARDWARE_ADDRESS.fullmatch(text) is not None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # Go's net.ParseIP accepts no zone


def _is_address_or_prefix(text: str) -> bool:
    address, slash, length = text.partition("/")
    if not _is_address(address):
        return False
    bits = ipaddress.ip_address(address).max_prefixlen
    return not slash or (length.isascii() and length.isdigit() and len(length) <= 3 and int(length) <= bits)


_ADDRESSES: Sequence[
    tuple[str, str, Callable[[str], bool]]
] = (  # (key, valid form, check) of values that Multus validates beyond their type
    ("ips", "an IP address, with or without /prefix", _is_address_or_prefix),
    ("mac", "a MAC address, such as 02:00:00:00:00:01", _is_hardware_address),
    ("infiniband-guid", "a GUID of 8 bytes separated by ':'", _is_hardware_address),
    # Go reads an empty text as a nil address, which Multus accepts
    ("default-route", "an IP address", lambda text: not text or _is_address(text)),
)
