"""Parses and extends Multus's annotation k8s.v1.cni.cncf.io/networks, and computes the pod's interface names.

Parsing follows multus-cni pkg/k8sclient (parsePodNetworkAnnotation) and the NPWG multi-net-spec v1. Merging follows
docs/interface.md 3.1: the user's entries are never changed, and railwright's are appended.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from railwright.fabric import multus_json

MAX_INTERFACE = 15  # characters: IFNAMSIZ of the Linux kernel without its terminator
LOOPBACK = "lo"
CRI_INTERFACE = "eth0"  # all container runtimes give this name to the cluster network
_JSON_MARKS = frozenset('[{"')  # any of these makes Multus read the value as JSON
_LIST_MARKS = _JSON_MARKS | frozenset(",@")  # not allowed in an interface of the comma list
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
# Characters that Go's strings.TrimSpace removes; Python's strip() would also remove U+001C to U+001F.
_GO_SPACE = (
    " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_ALL_DOTS = frozenset({b".", b".."})
_NOT_IN_NAMES = frozenset(b"/:% \t\n\v\f\r\xa0")  # bytes; the kernel reads 0xa0 as a space and % as a pattern
_MAX_QUOTED = 80  # characters of an invalid entry in an error message
_MAX_CACHED_LENGTH = 2048  # characters; merges of longer values are not cached


class InvalidNetworksError(ValueError):
    """Multus would reject the value. `position` counts entries from 1; 0 stands for the entire value."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"entry {position}: {problem}" if position else problem)
        self.position = position
        self.problem = problem


class Selection(msgspec.Struct, frozen=True):
    """A network attachment as Multus sees it."""

    namespace: str
    name: str
    interface: str = ""  # "" for the automatic name, net<index in the delegate list>
    gateways: tuple[str, ...] | None = None  # of default-route; None if the entry has none

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of the NetworkAttachmentDefinition."""
        return (self.namespace, self.name)


class Merged(msgspec.Struct, frozen=True):
    """The merged annotation: its text, all attachments in order, and the number of new ones at the end."""

    text: str
    selections: tuple[Selection, ...]
    added: int


def is_json(text: str) -> bool:
    """True if Multus reads the value as a JSON array. The test is Multus's own."""
    return not _JSON_MARKS.isdisjoint(text)


def parse(text: str, namespace: str) -> tuple[Selection, ...]:
    """Return the attachments of a pod in `namespace`, in order. Raises InvalidNetworksError."""
    if not text:
        return ()
    if not text.isascii() and _LONE_SURROGATE.search(text):
        raise InvalidNetworksError(0, "contains half of a UTF-16 surrogate pair; remove it")
    return _parse_json(text, namespace) if is_json(text) else _parse_list(text, namespace)


def merge(text: str, ours: Sequence[Selection], namespace: str) -> Merged:
    """Append the entries of `ours` that `text` does not already contain. Raises InvalidNetworksError.

    A user's entry replaces one of `ours` with the same network (docs/interface.md 3.1). A comma list becomes JSON only
    if a missing entry has a name that the list cannot express.
    """
    if len(text) > _MAX_CACHED_LENGTH:
        return _merge(text, tuple(ours), namespace)
    return _merge_cached(text, tuple(ours), namespace)


def _merge(text: str, ours: tuple[Selection, ...], namespace: str) -> Merged:
    theirs = parse(text, namespace)
    missing = _find_missing(theirs, ours)
    if not missing:
        return Merged(text, theirs, 0)
    if text and is_json(text):
        written = _append_json(text, missing, empty=not theirs)
    elif all(_fits_list(selection) for selection in missing):
        written = ",".join([text] * bool(text) + [_list_item(selection) for selection in missing])
    else:
        written = _encode([*_list_as_json(text), *map(_json_item, missing)])
    return Merged(written, theirs + missing, len(missing))


# Pods of a gang have the same value. The bound limits the memory that users' values can take.
_merge_cached = functools.lru_cache(maxsize=512)(_merge)


def interfaces(selections: Sequence[Selection], cluster_wide: int) -> tuple[str, ...]:
    """Return the interface name of each attachment.

    Automatic names count from the `cluster_wide` networks that Multus attaches before the pod's own.
    """
    return tuple(
        selection.interface or f"net{cluster_wide + number}" for number, selection in enumerate(selections, start=1)
    )


def check_interfaces(selections: Sequence[Selection], cluster_wide: int, primary: str, added: int = 0) -> None:
    """Raise InvalidNetworksError if two interfaces of the pod would have the same name.

    The last `added` selections are the fabric's. The error names what can be changed: an entry of the annotation, for
    the pod's author, or the interface of a rail, for the operator.
    """
    reserved = {primary: "the pod's primary interface", LOOPBACK: "the loopback interface"}
    reserved.setdefault(CRI_INTERFACE, "the pod's cluster network")
    for number in range(1, cluster_wide + 1):
        reserved[f"net{number}"] = f"network {number} of those attached to every pod"
    interface_names = interfaces(selections, cluster_wide)
    user_entries = len(selections) - added
    first_positions: dict[str, int] = {}
    for position, name in enumerate(interface_names, start=1):
        clash = f"{_describe_origin(selections[position - 1])} {name!r}, which "
        earlier = first_positions.setdefault(name, position)
        if position <= user_entries and (name in reserved or earlier < position):
            network = _quote("/".join(selections[position - 1].key))
            other = reserved.get(name, f"the interface of entry {earlier}")
            raise InvalidNetworksError(position, f"{clash}is {other}; name it differently (it is network {network})")
        if name in reserved or user_entries < earlier < position:
            other = reserved.get(name, f"the interface of network {'/'.join(selections[earlier - 1].key)}")
            raise InvalidNetworksError(
                0,
                f"network {'/'.join(selections[position - 1].key)} of the fabric: {clash}is {other}; "
                "correct `interface` of its rail in the policy",
            )
        if earlier < position:
            raise InvalidNetworksError(
                earlier,
                f"{_describe_origin(selections[earlier - 1])} {name!r}, which railwright gives to network "
                f"{'/'.join(selections[position - 1].key)} of the fabric: its networks come after yours and take "
                f"{', '.join(interface_names[user_entries:])}; give entry {earlier} another interface",
            )


def _describe_origin(selection: Selection) -> str:
    return "asks for interface" if selection.interface else "is given the automatic name"


def check_gateways(selections: Sequence[Selection]) -> None:
    """Raise InvalidNetworksError if there is more than one default route (multus-cni, CheckGatewayConfig)."""
    first_positions: dict[str, int] = {}
    for position, selection in enumerate(selections, start=1):
        for family in multus_json.families(selection.gateways) if selection.gateways else ():
            if family in first_positions:
                raise InvalidNetworksError(
                    position,
                    f'"default-route" names a second {family} gateway, after entry {first_positions[family]}; '
                    "Multus allows one gateway of each family in a pod: remove one",
                )
            first_positions[family] = position


def _find_missing(theirs: Sequence[Selection], ours: Sequence[Selection]) -> tuple[Selection, ...]:
    """Return the entries of `ours` without a partner in `theirs`.

    A partner has the same network. Those with the same interface as well are paired first.
    """
    unmatched = _subtract(ours, theirs, lambda selection: (selection.key, selection.interface))
    free = _subtract(theirs, ours, lambda selection: (selection.key, selection.interface))
    return _subtract(unmatched, free, lambda selection: selection.key)


def _subtract(
    selections: Sequence[Selection], others: Sequence[Selection], identify: Callable[[Selection], Hashable]
) -> tuple[Selection, ...]:
    """Return the `selections` that have no partner with the same identity in `others`, in order."""
    partners = Counter(map(identify, others))
    remaining = []
    for selection in selections:
        if partners[identify(selection)] > 0:
            partners[identify(selection)] -= 1
        else:
            remaining.append(selection)
    return tuple(remaining)


# --- the comma list ---------------------------------------------------------------------------------------


def _parse_list(text: str, namespace: str) -> tuple[Selection, ...]:
    return tuple(_parse_item(item, position, namespace) for position, item in enumerate(text.split(","), start=1))


def _parse_item(item: str, position: int, namespace: str) -> Selection:
    own_namespace, name, interface = _split_item(item.strip(_GO_SPACE), position)
    for part, noun in ((own_namespace, "namespace"), (name, "network")):
        if part and not _DNS_LABEL.fullmatch(part):
            raise InvalidNetworksError(
                position,
                f"{noun} {_quote(part)} is not a DNS label (lower-case letters, digits and '-'); "
                "other names need the JSON form",
            )
    if not name:
        raise InvalidNetworksError(position, "is empty; remove the extra comma or name a network")
    _check_name(interface, position)
    return Selection(own_namespace or namespace, name, interface)


def _split_item(item: str, position: int) -> tuple[str, str, str]:
    front, _, rest = item.rpartition("/")
    if "/" in front:
        raise InvalidNetworksError(position, f"{_quote(item)} has more than one '/'; write namespace/name@interface")
    name, _, interface = rest.partition("@")
    if "@" in interface:
        raise InvalidNetworksError(position, f"{_quote(item)} has more than one '@'; write namespace/name@interface")
    return front.strip(_GO_SPACE), name.strip(_GO_SPACE), interface.strip(_GO_SPACE)


def _list_item(selection: Selection) -> str:
    item = f"{selection.namespace}/{selection.name}"
    return f"{item}@{selection.interface}" if selection.interface else item


def _fits_list(selection: Selection) -> bool:
    return (
        _DNS_LABEL.fullmatch(selection.name) is not None
        and _DNS_LABEL.fullmatch(selection.namespace) is not None
        and _LIST_MARKS.isdisjoint(selection.interface)
    )


# --- the JSON array ---------------------------------------------------------------------------------------

_MAX_SNIPPET = 20  # characters of a value, from where it stops being JSON
_JSON_FIX = (
    'Multus reads a value that contains one of [ { " as a JSON array: correct it, or write a list such as '
    "namespace/name@interface,namespace/name"
)


def _parse_json(text: str, namespace: str) -> tuple[Selection, ...]:
    try:
        entries = multus_json.decode(text)
    except json.JSONDecodeError as error:
        near = text[error.pos : error.pos + _MAX_SNIPPET]
        place = f"at character {error.pos + 1}, {near!r}" if near else "at its end"
        raise InvalidNetworksError(0, f"is not valid JSON {place}; {_JSON_FIX}") from None
    except ValueError:
        raise InvalidNetworksError(0, f"is not valid JSON; {_JSON_FIX}") from None
    except RecursionError:
        raise InvalidNetworksError(0, f"is JSON that is nested too deeply; {_JSON_FIX}") from None
    if not isinstance(entries, list):
        raise InvalidNetworksError(0, "is JSON but not an array; put [ and ] around it")
    return tuple(_parse_entry(entry, position, namespace) for position, entry in enumerate(entries, start=1))


def _parse_entry(entry: Any, position: int, namespace: str) -> Selection:
    try:
        element = multus_json.read(entry)
    except multus_json.InvalidElementError as error:
        raise InvalidNetworksError(position, str(error)) from None
    except RecursionError:
        raise InvalidNetworksError(position, "is nested too deeply; flatten cni-args") from None
    if not element.name:
        raise InvalidNetworksError(position, 'has no "name"; name a network')
    _check_name(element.interface, position)
    return Selection(element.namespace or namespace, element.name, element.interface, element.gateways)


def _append_json(text: str, missing: Sequence[Selection], *, empty: bool) -> str:
    """Insert the missing entries before the closing bracket. The user's bytes do not change."""
    head = text.rstrip()
    ours = _encode([_json_item(selection) for selection in missing])
    return f"{head[:-1]}{'' if empty else ','}{ours[1:]}{text[len(head) :]}"


def _list_as_json(text: str) -> list[dict[str, str]]:
    """Return the entries of the user's comma list for JSON. Entries without a namespace stay without one."""
    entries = []
    for selection in parse(text, ""):
        entry = {"name": selection.name, "namespace": selection.namespace, "interface": selection.interface}
        entries.append({key: value for key, value in entry.items() if value})
    return entries


def _json_item(selection: Selection) -> dict[str, str]:
    item = {"name": selection.name, "namespace": selection.namespace}
    return item | {"interface": selection.interface} if selection.interface else item


def _encode(entries: Sequence[dict[str, str]]) -> str:
    return msgspec.json.encode(entries).decode()


# --- both -------------------------------------------------------------------------------------------------


def _check_name(interface: str, position: int) -> None:
    """Apply the kernel's rule (net/core/dev.c, dev_valid_name), which otherwise fails only when the pod starts."""
    name = interface.encode(errors="replace")
    if len(name) > MAX_INTERFACE:
        raise InvalidNetworksError(
            position, f"interface {_quote(interface)} is longer than {MAX_INTERFACE} characters; shorten it"
        )
    if name in _ALL_DOTS or not _NOT_IN_NAMES.isdisjoint(name):
        raise InvalidNetworksError(
            position, f"interface {_quote(interface)} contains a space, '/', ':' or '%', or is all dots; rename it"
        )


def _quote(text: str) -> str:
    return repr(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}...")
