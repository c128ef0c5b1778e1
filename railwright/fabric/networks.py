"""Multus's network-selection annotation: parse, merge, emit, and the interface names that follow from it.

Owns the grammar of k8s.v1.cni.cncf.io/networks as Multus reads it (multus-cni pkg/k8sclient
parsePodNetworkAnnotation; NPWG multi-net-spec v1) and rulings 9 and 10. Refuses to know rails, policies and
whether a network exists; what a user wrote is never rewritten, only added to.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from railwright.fabric import network_element

MAX_INTERFACE = 15  # IFNAMSIZ of the Linux kernel, less its terminator
LOOPBACK = "lo"
CRI_INTERFACE = "eth0"  # every container runtime names the cluster network so
_JSON_MARKS = frozenset('[{"')  # any of these makes Multus read the value as JSON
_LIST_MARKS = _JSON_MARKS | frozenset(",@")  # none of these can stand inside an item of the comma list
_HALF = re.compile("[\ud800-\udfff]")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
# What Go's strings.TrimSpace takes off: unlike Python's strip(), not U+001C to U+001F.
_GO_SPACE = (
    " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_ALL_DOTS = frozenset({b".", b".."})
_NOT_IN_NAMES = frozenset(b"/:% \t\n\v\f\r\xa0")  # bytes; the kernel takes 0xa0 for a space and % for a pattern
_REMEMBERED = 2048  # characters: a longer value is merged anew each time
_SHOWN = 80  # characters of a bad entry that an error repeats


class InvalidNetworksError(ValueError):
    """Multus could not use the value; `position` counts entries from 1, 0 = the value as a whole."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"entry {position}: {problem}" if position else problem)
        self.position = position
        self.problem = problem


class Selection(msgspec.Struct, frozen=True):
    """One attachment as Multus sees it."""

    namespace: str
    name: str
    interface: str = ""  # "" = automatic: net<index in the delegate list>
    gateways: tuple[str, ...] | None = None  # of default-route; None where the entry has none

    @property
    def key(self) -> tuple[str, str]:
        """The NetworkAttachmentDefinition."""
        return (self.namespace, self.name)


class Merged(msgspec.Struct, frozen=True):
    """The merged value: its text, every attachment in order, and how many at the end are new."""

    text: str
    selections: tuple[Selection, ...]
    added: int


def is_json(text: str) -> bool:
    """True where Multus would read the value as a JSON array; its own test."""
    return not _JSON_MARKS.isdisjoint(text)


def parse(text: str, namespace: str) -> tuple[Selection, ...]:
    """The attachments of a value, in order, in a pod of `namespace`. "" has none. Raises InvalidNetworksError."""
    if not text:
        return ()
    if not text.isascii() and _HALF.search(text):
        raise InvalidNetworksError(0, "holds half of a UTF-16 pair, which is no character; remove it")
    return _parse_json(text, namespace) if is_json(text) else _parse_list(text, namespace)


def merge(text: str, ours: Sequence[Selection], namespace: str) -> Merged:
    """The user's value with those of `ours` it lacks behind it.

    An entry of the user counts for one of ours with the same network (ruling 10). The form is kept unless
    one of the missing has a name that only JSON can carry. Raises InvalidNetworksError.
    """
    if len(text) > _REMEMBERED:
        return _merged(text, tuple(ours), namespace)
    return _remembered(text, tuple(ours), namespace)


def _merged(text: str, ours: tuple[Selection, ...], namespace: str) -> Merged:
    theirs = parse(text, namespace)
    missing = _missing(theirs, ours)
    if not missing:
        return Merged(text, theirs, 0)
    if text and is_json(text):
        written = _append_json(text, missing, empty=not theirs)
    elif all(_fits_list(selection) for selection in missing):
        written = ",".join([text] * bool(text) + [_list_item(selection) for selection in missing])
    else:
        written = _encode([*_list_as_json(text), *map(_json_item, missing)])
    return Merged(written, theirs + missing, len(missing))


# Pods of a gang bring the same value; the bound keeps what users write from filling the memory.
_remembered = functools.lru_cache(maxsize=512)(_merged)


def interfaces(selections: Sequence[Selection], cluster_wide: int) -> tuple[str, ...]:
    """The name of each attachment in the pod; `cluster_wide` networks come before the pod's own and use up numbers."""
    return tuple(
        selection.interface or f"net{cluster_wide + number}" for number, selection in enumerate(selections, start=1)
    )


def check_interfaces(selections: Sequence[Selection], cluster_wide: int, primary: str, added: int = 0) -> None:
    """Raise InvalidNetworksError where two interfaces of the pod would have one name.

    The last `added` selections are those of the fabric. The error speaks of the entry that somebody can change: the
    pod's author an entry of the text, the operator the interface of a rail.
    """
    reserved = {primary: "the pod's primary interface", LOOPBACK: "the loopback interface"}
    reserved.setdefault(CRI_INTERFACE, "the pod's cluster network")
    for number in range(1, cluster_wide + 1):
        reserved[f"net{number}"] = f"network {number} of those attached to every pod"
    named = interfaces(selections, cluster_wide)
    written = len(selections) - added  # entries of the user's text
    first: dict[str, int] = {}
    for position, name in enumerate(named, start=1):
        clash = f"{_asking(selections[position - 1])} {name!r}, which "
        earlier = first.setdefault(name, position)
        if position <= written and (name in reserved or earlier < position):
            network = _shown("/".join(selections[position - 1].key))
            other = reserved.get(name, f"the interface of entry {earlier}")
            raise InvalidNetworksError(position, f"{clash}is {other}; name it differently (it is network {network})")
        if name in reserved or written < earlier < position:
            other = reserved.get(name, f"the interface of network {'/'.join(selections[earlier - 1].key)}")
            raise InvalidNetworksError(
                0,
                f"network {'/'.join(selections[position - 1].key)} of the fabric: {clash}is {other}; "
                "correct `interface` of its rail in the policy",
            )
        if earlier < position:
            raise InvalidNetworksError(
                earlier,
                f"{_asking(selections[earlier - 1])} {name!r}, which railwright gives to network "
                f"{'/'.join(selections[position - 1].key)} of the fabric: its networks come after yours and take "
                f"{', '.join(named[written:])}; give entry {earlier} another interface",
            )


def _asking(selection: Selection) -> str:
    return "asks for interface" if selection.interface else "is given the automatic name"


def check_gateways(selections: Sequence[Selection]) -> None:
    """Raises InvalidNetworksError where more than one default route is asked for (Multus: CheckGatewayConfig)."""
    first: dict[str, int] = {}
    for position, selection in enumerate(selections, start=1):
        for family in network_element.families(selection.gateways) if selection.gateways else ():
            if family in first:
                raise InvalidNetworksError(
                    position,
                    f'"default-route" names a second {family} gateway, after entry {first[family]}; '
                    "Multus takes one of each family in all, remove one",
                )
            first[family] = position


def _missing(theirs: Sequence[Selection], ours: Sequence[Selection]) -> tuple[Selection, ...]:
    """Those of ours that no entry of theirs stands for: first the one with the same interface, then any other."""
    unmatched = _beyond(ours, theirs, lambda selection: (selection.key, selection.interface))
    free = _beyond(theirs, ours, lambda selection: (selection.key, selection.interface))
    return _beyond(unmatched, free, lambda selection: selection.key)


def _beyond(
    some: Sequence[Selection], others: Sequence[Selection], identity: Callable[[Selection], Hashable]
) -> tuple[Selection, ...]:
    """Those of `some` that have no partner of the same identity in `others`, in order."""
    partners = Counter(map(identity, others))
    beyond = []
    for selection in some:
        if partners[identity(selection)] > 0:
            partners[identity(selection)] -= 1
        else:
            beyond.append(selection)
    return tuple(beyond)


# --- the comma list ---------------------------------------------------------------------------------------


def _parse_list(text: str, namespace: str) -> tuple[Selection, ...]:
    return tuple(_parse_item(item, position, namespace) for position, item in enumerate(text.split(","), start=1))


def _parse_item(written: str, position: int, namespace: str) -> Selection:
    own_namespace, name, interface = _split_item(written.strip(_GO_SPACE), position)
    for part, what in ((own_namespace, "namespace"), (name, "network")):
        if part and not _DNS_LABEL.fullmatch(part):
            raise InvalidNetworksError(
                position,
                f"{what} {_shown(part)} is not a DNS label (lower-case letters, digits and '-'); "
                "other names need the JSON form",
            )
    if not name:
        raise InvalidNetworksError(position, "is empty; remove the extra comma or name a network")
    _check_name(interface, position)
    return Selection(own_namespace or namespace, name, interface)


def _split_item(item: str, position: int) -> tuple[str, str, str]:
    front, _, rest = item.rpartition("/")
    if "/" in front:
        raise InvalidNetworksError(position, f"{_shown(item)} has more than one '/'; write namespace/name@interface")
    name, _, interface = rest.partition("@")
    if "@" in interface:
        raise InvalidNetworksError(position, f"{_shown(item)} has more than one '@'; write namespace/name@interface")
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

_NEAR = 20  # characters of a value behind the place where it stops being JSON
_JSON_FIX = (
    'Multus reads a value that contains one of [ { " as a JSON array: correct it, or write a list such as '
    "namespace/name@interface,namespace/name"
)


def _parse_json(text: str, namespace: str) -> tuple[Selection, ...]:
    try:
        entries = network_element.decode(text)
    except json.JSONDecodeError as error:
        near = text[error.pos : error.pos + _NEAR]
        where = f"at character {error.pos + 1}, {near!r}" if near else "at its end"
        raise InvalidNetworksError(0, f"is not valid JSON {where}; {_JSON_FIX}") from None
    except ValueError:
        raise InvalidNetworksError(0, f"is not valid JSON; {_JSON_FIX}") from None
    except RecursionError:
        raise InvalidNetworksError(0, f"is JSON that is nested too deeply; {_JSON_FIX}") from None
    if not isinstance(entries, list):
        raise InvalidNetworksError(0, "is JSON but not an array; put [ and ] around it")
    return tuple(_parse_entry(entry, position, namespace) for position, entry in enumerate(entries, start=1))


def _parse_entry(entry: Any, position: int, namespace: str) -> Selection:
    try:
        element = network_element.read(entry)
    except network_element.FlawError as error:
        raise InvalidNetworksError(position, str(error)) from None
    except RecursionError:
        raise InvalidNetworksError(position, "is nested too deeply; take cni-args apart") from None
    if not element.name:
        raise InvalidNetworksError(position, 'has no "name"; name a network')
    _check_name(element.interface, position)
    return Selection(element.namespace or namespace, element.name, element.interface, element.gateways)


def _append_json(text: str, missing: Sequence[Selection], *, empty: bool) -> str:
    """Put ours before the closing bracket: every byte of the user's stays."""
    head = text.rstrip()
    ours = _encode([_json_item(selection) for selection in missing])
    return f"{head[:-1]}{'' if empty else ','}{ours[1:]}{text[len(head) :]}"


def _list_as_json(text: str) -> list[dict[str, str]]:
    """The user's comma list as JSON entries: no namespace where none was written, so the meaning stays."""
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
    """The kernel's rule (net/core/dev.c dev_valid_name), which says no only when the pod starts."""
    name = interface.encode(errors="replace")
    if len(name) > MAX_INTERFACE:
        raise InvalidNetworksError(
            position, f"interface {_shown(interface)} is longer than {MAX_INTERFACE} characters; shorten it"
        )
    if name in _ALL_DOTS or not _NOT_IN_NAMES.isdisjoint(name):
        raise InvalidNetworksError(
            position, f"interface {_shown(interface)} holds a space, '/', ':' or '%', or is all dots; rename it"
        )


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
