"""The JSON form of Multus's annotation: its objects as Go's encoding/json fills them, and the addresses Multus checks.

Owns multus-cni's NetworkSelectionElement (pkg/types/types.go, and conf.go's rule of one default gateway) and no more:
what the names in it mean is `networks`. Go looks at every key, also at one that is written twice, and does not mind
its case; Python's own reader keeps such keys apart, which msgspec does not.
"""

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
_SHOWN = 64  # characters of a user's text that an error repeats
_INT64 = range(-(2**63), 2**63)
_LONGEST_INT = 20  # characters of the longest of those, its sign included
_LONG_S = "\u017f"  # with the Kelvin sign, which lower() knows, the letters Go folds into ASCII
_SURROGATES = re.compile("[\ud800-\udfff]")


class FlawError(ValueError):
    """Multus would reject the object; the text says which key, what it is and what it should be."""


class Element(msgspec.Struct, frozen=True):
    """NetworkSelectionElement of multus-cni, as far as a decision reads it."""

    name: str = ""
    namespace: str = ""
    interface: str = ""  # the old interfaceRequest where that alone is given
    gateways: tuple[str, ...] | None = None  # default-route; None where absent


class _Object(tuple[tuple[str, Any], ...]):
    """The pairs of a JSON object, in order; a key may be there twice."""

    __slots__ = ()


class _Number(str):
    """A number as it is written: 1, 1.0 and 1e0 are not the same to Go."""

    __slots__ = ()


def decode(text: str) -> Any:
    """The text as JSON values; objects and numbers are kept as written. Raises ValueError, RecursionError."""
    return _DECODER.decode(text)


def read(tree: Any) -> Element:
    """One object of the array. Raises FlawError where Multus would reject it."""
    if not isinstance(tree, _Object):
        raise FlawError('is not an object; write {"name": "...", "namespace": "..."}')
    given = _fields(tree, _ELEMENT, "")
    for key, form, holds in _ADDRESSES:
        for value in _listed(given.get(key)):
            if not holds(value):
                raise FlawError(f'"{key}" {value[:_SHOWN]!r} is not {form}')
    gateways = given.get("default-route")
    return Element(
        name=given.get("name", ""),
        namespace=given.get("namespace", ""),
        interface=given.get("interface", "") or given.get("interfaceRequest", ""),
        gateways=None if gateways is None else tuple(gateways),
    )


# --- Go's reading of types --------------------------------------------------------------------------------

_Check = Callable[[Any, str], Any]  # (value, where) -> the value as Go has it, or FlawError


def _fields(tree: _Object, checks: Mapping[str, tuple[str, _Check]], where: str) -> dict[str, Any]:
    """The known keys of an object; of one written twice the last, though all are checked.

    null is the same as absent; after a first value it empties a list or an object and leaves a string as it was.
    """
    given: dict[str, Any] = {}
    for key, value in tree:
        known = checks.get(_folded(key))
        if known is None:
            continue
        name, check = known
        if value is not None:
            given[name] = check(value, f"{where}{name}")
        elif check is not _string:
            given.pop(name, None)
    return given


def _folded(key: str) -> str:
    return key.lower().replace(_LONG_S, "s")


def _string(value: Any, where: str) -> str:
    if not isinstance(value, str) or isinstance(value, _Number):
        raise _wrong(where, "a string", value)
    return _SURROGATES.sub("\ufffd", value)  # as Go reads the half of a pair


def _integer(value: Any, where: str) -> int:
    digits = value if isinstance(value, _Number) else _Number("x")
    if len(digits) > _LONGEST_INT or not digits.lstrip("-").isdigit() or int(digits) not in _INT64:
        raise _wrong(where, "a whole number", value)
    return int(digits)


def _anything(value: Any, where: str) -> Any:
    """Whatever Go can hold: of the numbers those that fit a float64."""
    if isinstance(value, _Number) and float(value) in {float("inf"), float("-inf")}:
        raise _wrong(where, "a number Multus can hold", value)
    if isinstance(value, list | _Object):
        for each in value:
            _anything(each[1] if isinstance(value, _Object) else each, where)
    return value


def _mapping(value: Any, where: str) -> Any:
    if not isinstance(value, _Object):
        raise _wrong(where, "an object", value)
    return _anything(value, where)


def _structure(**checks: _Check) -> _Check:
    table = {name.lower(): (name, check) for name, check in checks.items()}

    def check(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, _Object):
            raise _wrong(where, "an object", value)
        return _fields(value, table, f"{where}.")

    return check


def _list_of(item: _Check, absent: Any) -> _Check:
    """A list; null in it is `absent`."""

    def check(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        return [absent if each is None else item(each, f"{where}[{at}]") for at, each in enumerate(value)]

    return check


_KEYS: Mapping[str, _Check] = {
    "name": _string,
    "namespace": _string,
    "interface": _string,
    "interfaceRequest": _string,  # before Multus 3.2
    "ips": _list_of(_string, ""),
    "mac": _string,
    "infiniband-guid": _string,
    "portMappings": _list_of(
        _structure(hostPort=_integer, containerPort=_integer, protocol=_string, hostIP=_string), None
    ),
    "bandwidth": _structure(ingressRate=_integer, ingressBurst=_integer, egressRate=_integer, egressBurst=_integer),
    "deviceID": _string,
    "cni-args": _mapping,
    "default-route": _list_of(_string, ""),
    "ipam-claim-reference": _string,  # Multus 4.2.3 does not know it, later ones do
}
_ELEMENT = {name.lower(): (name, check) for name, check in _KEYS.items()}


def _wrong(where: str, wanted: str, value: Any) -> FlawError:
    return FlawError(f'has a value of the wrong type: "{where}" is {_kind(value)} and must be {wanted}')


def _kind(value: Any) -> str:
    if isinstance(value, _Number):
        return f"the number {value[:_SHOWN]}"
    names: Mapping[type, str] = {str: "a string", bool: "a boolean", list: "a list", _Object: "an object"}
    return names.get(type(value), "null")


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Object, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant
)


# --- addresses --------------------------------------------------------------------------------------------


def families(gateways: Iterable[str]) -> tuple[str, ...]:
    """IPv4 or IPv6 of each gateway as Multus counts them: an empty one is IPv6, a mapped one IPv4."""
    return tuple("IPv4" if "." in each or _mapped(each) else "IPv6" for each in gateways)


def _mapped(text: str) -> bool:
    return bool(text) and getattr(ipaddress.ip_address(text), "ipv4_mapped", None) is not None


def _listed(value: Any) -> Sequence[str]:
    if isinstance(value, list):
        return value
    return (value,) if value else ()  # an empty mac or guid is none


def _is_hardware_address(text: str) -> bool:
    return _HARDWARE_ADDRESS.fullmatch(text) is not None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # Go's net.ParseIP takes no zone


def _is_gateway(text: str) -> bool:
    return not text or _is_address(text)  # Go reads an empty text as no address, and Multus counts it


def _is_address_or_prefix(text: str) -> bool:
    address, slash, length = text.partition("/")
    if not _is_address(address):
        return False
    bits = ipaddress.ip_address(address).max_prefixlen
    return not slash or (length.isascii() and length.isdigit() and len(length) <= 3 and int(length) <= bits)


_ADDRESSES: Sequence[tuple[str, str, Callable[[str], bool]]] = (  # what Multus checks beyond the type
    ("ips", "an IP address, with or without /prefix", _is_address_or_prefix),
    ("mac", "a MAC address, such as 02:00:00:00:00:01", _is_hardware_address),
    ("infiniband-guid", "a GUID of 8 bytes separated by ':'", _is_hardware_address),
    ("default-route", "an IP address", _is_gateway),
)
