"""The JSON array: the long form of Multus's annotation."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from railwright.fabric.multus import element, network_selection

_MAX_SNIPPET = 20  # characters of a value, from where it stops being JSON
_JSON_FIX = (
    'Multus reads a value that contains one of [ { " as a JSON array: correct it, or write a list such as '
    "namespace/name@interface,namespace/name"
)


def parse(text: str, namespace: str) -> tuple[network_selection.Selection, ...]:
    """Return the attachments of an array. Raises InvalidNetworksError."""
    try:
        entries = element.decode(text)
    except json.JSONDecodeError as error:
        near = text[error.pos : error.pos + _MAX_SNIPPET]
        place = f"at character {error.pos + 1}, {near!r}" if near else "at its end"
        raise network_selection.InvalidNetworksError(0, f"is not valid JSON {place}; {_JSON_FIX}") from None
    except ValueError:
        raise network_selection.InvalidNetworksError(0, f"is not valid JSON; {_JSON_FIX}") from None
    except RecursionError:
        raise network_selection.InvalidNetworksError(0, f"is JSON that is nested too deeply; {_JSON_FIX}") from None
    if not isinstance(entries, list):
        raise network_selection.InvalidNetworksError(0, "is JSON but not an array; put [ and ] around it")
    return tuple(_parse_entry(entry, position, namespace) for position, entry in enumerate(entries, start=1))


def _parse_entry(entry: Any, position: int, namespace: str) -> network_selection.Selection:
    try:
        fields = element.read(entry)
    except element.InvalidElementError as error:
        raise network_selection.InvalidNetworksError(position, str(error)) from None
    except RecursionError:
        raise network_selection.InvalidNetworksError(position, "is nested too deeply; flatten cni-args") from None
    if not fields.name:
        raise network_selection.InvalidNetworksError(position, 'has no "name"; name a network')
    network_selection.check_name(fields.interface, position)
    return network_selection.Selection(fields.namespace or namespace, fields.name, fields.interface, fields.gateways)


def append(text: str, missing: Sequence[network_selection.Selection], *, empty: bool) -> str:
    """Insert the missing entries before the closing bracket. The user's bytes do not change."""
    head = text.rstrip()
    ours = encode([build_item(attachment) for attachment in missing])
    return f"{head[:-1]}{'' if empty else ','}{ours[1:]}{text[len(head) :]}"


def build_item(attachment: network_selection.Selection) -> dict[str, str]:
    """Return an attachment as an object of the array, without empty fields."""
    item = {"name": attachment.name, "namespace": attachment.namespace, "interface": attachment.interface}
    return {key: value for key, value in item.items() if value}


def encode(entries: Sequence[dict[str, str]]) -> str:
    """Return the text of an array."""
    return msgspec.json.encode(entries).decode()
