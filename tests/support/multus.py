"""A port of Multus's parser of its annotation, line by line.

After multus-cni v4.2.3, pkg/k8sclient/k8sclient.go (parsePodNetworkAnnotation, parsePodNetworkObjectName) and
pkg/types/types.go (NetworkSelectionElement), and Go's encoding/json and net. Shares nothing with `fabric`; that it says
what Multus says is held by the recorded answers in tests/data/multus.
"""

import ipaddress
import json
import re
from typing import Any

Network = tuple[str, str, str, int]  # namespace, name, interface, gateways (-1: no default-route)


class RejectedError(Exception):
    """Multus returns an error, or panics."""


class Number(str):
    __slots__ = ()


class Pairs(list):
    __slots__ = ()


def read(text: str, namespace: str) -> list[Network]:
    """Return the networks of an annotation in a pod of a namespace. Raises RejectedError."""
    if text == "":
        return []
    if any(mark in text for mark in '[{"'):
        elements = _unmarshal(text)
    else:
        elements = [_object_name(_trim(item)) for item in text.split(",")]
    networks = []
    for element in elements:
        if element is None:
            raise RejectedError("a nil pointer: Multus panics")
        for key in ("mac", "infiniband-guid"):
            if element[key] != "" and not _parse_mac(element[key]):
                raise RejectedError(key)
        for ip in element["ips"] or ():
            if not (_parse_cidr(ip) if "/" in ip else _parse_ip(ip)):
                raise RejectedError("ips")
        interface = element["interface"] or element["interfaceRequest"]
        gateways = element["default-route"]
        networks.append(
            (
                element["namespace"] or namespace,
                element["name"],
                interface,
                -1 if gateways is None else len(gateways),
            )
        )
    return networks


# --- the comma list ---------------------------------------------------------------------------------------


def _object_name(item: str) -> dict[str, Any]:
    slashes = item.split("/")
    if len(slashes) > 2:
        raise RejectedError("failed at '/'")
    namespace = _trim(slashes[0]) if len(slashes) == 2 else ""
    ats = slashes[-1].split("@")
    if len(ats) > 2:
        raise RejectedError("failed at '@'")
    name, interface = _trim(ats[0]), _trim(ats[1]) if len(ats) == 2 else ""
    for part in (namespace, name):
        if part and not re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", part):
            raise RejectedError("mismatch")
    if len(interface.encode()) > 15 or any(mark in interface for mark in " \t\n\v\f\r/"):
        raise RejectedError("interface name")
    return _zero() | {"namespace": namespace, "name": name, "interface": interface}


def _trim(text: str) -> str:
    """Trim text as Go's strings.TrimSpace does (unicode.IsSpace)."""
    return text.strip(
        "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
    )


# --- encoding/json ----------------------------------------------------------------------------------------

_TYPES: dict[str, Any] = {
    "name": str,
    "namespace": str,
    "ips": [str],
    "mac": str,
    "infiniband-guid": str,
    "interface": str,
    "interfaceRequest": str,
    "portMappings": [{"hostPort": int, "containerPort": int, "protocol": str, "hostIP": str}],
    "bandwidth": {"ingressRate": int, "ingressBurst": int, "egressRate": int, "egressBurst": int},
    "deviceID": str,
    "cni-args": dict,
    "default-route": ["IP"],
}


def _zero() -> dict[str, Any]:
    return {name: "" if kind is str else None for name, kind in _TYPES.items()}


def _unmarshal(text: str) -> list[dict[str, Any] | None]:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        tree = json.loads(text, object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise RejectedError(str(error)) from None
    if not isinstance(tree, list) or isinstance(tree, Pairs):
        raise RejectedError("not an array")
    return [None if item is None else _zero() | _struct(item, _TYPES) for item in tree]


def _struct(tree: Any, fields: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(tree, Pairs):
        raise RejectedError("not an object")
    filled: dict[str, Any] = {}
    for key, value in tree:
        for name, kind in fields.items():
            if _equal_fold(key, name):
                if value is not None:
                    filled[name] = _value(value, kind)
                elif kind not in (str, int):
                    filled[name] = None
    return filled


def _value(value: Any, kind: Any) -> Any:
    if isinstance(kind, list):
        if not isinstance(value, list) or isinstance(value, Pairs):
            raise RejectedError("not a slice")
        zero = "" if kind[0] in (str, "IP") else None
        return [zero if item is None else _value(item, kind[0]) for item in value]
    if isinstance(kind, dict):
        return _struct(value, kind)
    if kind is dict:
        if not isinstance(value, Pairs):
            raise RejectedError("not a map")
        return _interface(value)
    if kind is int:
        if (
            not isinstance(value, Number)
            or not re.fullmatch("-?[0-9]{1,19}", value)
            or not -(2**63) <= int(value) < 2**63
        ):
            raise RejectedError("not an int")
        return int(value)
    if not isinstance(value, str) or isinstance(value, Number):
        raise RejectedError("not a string")
    if kind == "IP" and value and not _parse_ip(value):
        raise RejectedError("not an IP")
    return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in value)


def _interface(value: Any) -> Any:
    if isinstance(value, Number) and float(value) in (float("inf"), float("-inf")):
        raise RejectedError("out of float64's range")
    for item in value if isinstance(value, list) else ():
        _interface(item[1] if isinstance(value, Pairs) else item)
    return value


def _equal_fold(key: str, name: str) -> bool:
    fold = {"\u017f": "s", "\u212a": "k"}
    ascii_lower = "".join(
        fold.get(character, character.lower() if character.isascii() else character) for character in key
    )
    return ascii_lower == name.lower()


# --- net --------------------------------------------------------------------------------------------------


def _parse_mac(text: str) -> bool:
    for mark, digits in ((":", 2), ("-", 2), (".", 4)):
        parts = text.split(mark)
        if len(parts) > 1:
            return len(parts) * digits // 2 in (6, 8, 20) and all(
                re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", part) for part in parts
            )
    return False


def _parse_ip(text: str) -> bool:
    try:
        return "%" not in text and bool(ipaddress.ip_address(text).version)
    except ValueError:
        return False


def _parse_cidr(text: str) -> bool:
    address, _, bits = text.partition("/")
    if not _parse_ip(address) or not re.fullmatch("[0-9]{1,6}", bits):
        return False
    return int(bits) <= ipaddress.ip_address(address).max_prefixlen
