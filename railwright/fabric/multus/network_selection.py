"""Network attachments of a pod: Multus's annotation k8s.v1.cni.cncf.io/networks, and rules of Multus and the kernel.

Parsing follows multus-cni pkg/k8sclient (parsePodNetworkAnnotation) and the NPWG multi-net-spec v1, for the keys that
name an attachment. Multus itself checks the others when the pod starts. Merging follows docs/interface.md 3.1: the
user's entries are never changed, and railwright's are appended.
"""

import functools
import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from railwright.fabric import text as texts

MAX_INTERFACE = 15  # characters: IFNAMSIZ of the Linux kernel without its terminator
LOOPBACK = "lo"
CRI_INTERFACE = "eth0"  # all container runtimes give this name to the cluster network
_ALL_DOTS = frozenset({b".", b".."})
_NOT_IN_NAMES = frozenset(b"/:% \t\n\v\f\r\xa0")  # bytes; the kernel reads 0xa0 as a space and % as a pattern


class InvalidNetworksError(ValueError):
    """Raised if Multus would reject the value. `position` is the number of the entry, from 1; 0 stands for the entire
    value.
    """

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"entry {position}: {problem}" if position else problem)
        self.position = position
        self.problem = problem


class Selection(msgspec.Struct, frozen=True):
    """A network attachment, as Multus reads it from the annotation."""

    namespace: str
    name: str
    interface: str = ""  # "" for the automatic name, net<index in the delegate list>
    has_default_route: bool = False
    unknown_key: str | None = None  # the first key of the entry that Multus does not know, and ignores

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of the NetworkAttachmentDefinition."""
        return (self.namespace, self.name)


def name_interfaces(selections: Sequence[Selection]) -> tuple[str, ...]:
    """Return the interface name of each attachment: its own, otherwise the automatic one."""
    return tuple([selection.interface or f"net{number}" for number, selection in enumerate(selections, start=1)])


def check_interfaces(selections: Sequence[Selection], added: int = 0) -> None:
    """Raise InvalidNetworksError if two interfaces of the pod would have the same name.

    The last `added` selections are the fabric's. The error names what can be changed: an entry of the annotation, for
    the pod's author, or the interface of a rail, for the operator.
    """
    reserved = {CRI_INTERFACE: "the pod's cluster network", LOOPBACK: "the loopback interface"}
    interface_names = name_interfaces(selections)
    if len({*reserved, *interface_names}) == len(reserved) + len(interface_names):
        return
    user_entries = len(selections) - added
    first_positions: dict[str, int] = {}
    for position, name in enumerate(interface_names, start=1):
        clash = f"{_describe_origin(selections[position - 1])} {name!r}, which "
        earlier = first_positions.setdefault(name, position)
        if position <= user_entries and (name in reserved or earlier < position):
            network = texts.quote("/".join(selections[position - 1].key))
            other = reserved.get(name, f"the interface of entry {earlier}")
            raise InvalidNetworksError(position, f"{clash}is {other}; rename it (the entry selects network {network})")
        if user_entries < earlier < position:
            other = "/".join(selections[earlier - 1].key)
            raise InvalidNetworksError(
                0,
                f"network {'/'.join(selections[position - 1].key)} of the fabric: {clash}is the interface of network "
                f"{other}; correct `interface` of its rail in the policy",
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


def check_interface_name(interface: str, position: int) -> None:
    """Raise InvalidNetworksError for a name that the kernel would reject (net/core/dev.c, dev_valid_name)."""
    name = interface.encode(errors="replace")
    if len(name) > MAX_INTERFACE:
        raise InvalidNetworksError(
            position, f"interface {texts.quote(interface)} is longer than {MAX_INTERFACE} characters; shorten it"
        )
    if name in _ALL_DOTS or not _NOT_IN_NAMES.isdisjoint(name):
        raise InvalidNetworksError(
            position, f"interface {texts.quote(interface)} contains a space, '/', ':' or '%', or is all dots; rename it"
        )


# --- the annotation ---------------------------------------------------------------------------------------

_JSON_MARKS = frozenset('[{"')  # any of these makes Multus read the value as JSON
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_CACHED_LENGTH = 2048  # characters of an annotation; results for longer ones are not cached


class MergedAnnotation(msgspec.Struct, frozen=True):
    """The merged annotation: its text, all attachments in order, and the number of new ones at the end."""

    text: str
    selections: tuple[Selection, ...]
    added: int


def is_json(text: str) -> bool:
    """True if Multus reads the value as a JSON array, because it contains one of `[`, `{` and `"`."""
    return not _JSON_MARKS.isdisjoint(text)


def parse_networks(text: str, namespace: str) -> tuple[Selection, ...]:
    """Return the attachments of a pod in `namespace`, in order. Raises InvalidNetworksError."""
    if not text:
        return ()
    return _parse_cached(text, namespace) if len(text) <= _MAX_CACHED_LENGTH else _parse_value(text, namespace)


def _parse_value(text: str, namespace: str) -> tuple[Selection, ...]:
    if not text.isascii() and _LONE_SURROGATE.search(text):
        raise InvalidNetworksError(0, "contains half of a UTF-16 surrogate pair; remove it")
    if is_json(text):
        return _parse_array(text, namespace)
    return tuple(_parse_item(item, position, namespace) for position, item in enumerate(text.split(","), start=1))


def merge_networks(text: str, theirs: tuple[Selection, ...], ours: tuple[Selection, ...]) -> MergedAnnotation:
    """Append the entries of `ours` that the annotation does not contain already.

    `theirs` are the attachments of `text`. A user's entry replaces one of `ours` with the same network
    (docs/interface.md 3.1). A comma list becomes JSON only if a missing entry has a name that the list cannot express.
    """
    missing = _find_missing(theirs, ours)
    if not missing:
        return MergedAnnotation(text, theirs, 0)
    if text and is_json(text):
        merged = _append_to_array(text, missing, empty=not theirs)
    elif all(map(_fits_list, missing)):
        merged = ",".join([text] * bool(text) + [_format_item(selection) for selection in missing])
    else:
        own = parse_networks(text, "")  # entries without a namespace stay without one
        merged = _encode_array([_build_item(selection) for selection in (*own, *missing)])
    return MergedAnnotation(merged, theirs + missing, len(missing))


# Pods of a gang have the same value. The bounds limit the memory that users' values can take.
_parse_cached = functools.lru_cache(maxsize=512)(_parse_value)


def _find_missing(theirs: Sequence[Selection], ours: tuple[Selection, ...]) -> tuple[Selection, ...]:
    """Return the entries of `ours` that `theirs` lacks. An entry of `theirs` stands for one with the same network."""
    free, missing = [*theirs], [*ours]
    # Rails may share a network. Paired by network alone, a user's entry for the interface of the second rail would
    # stand for the first one, and the second would be added with an interface name that is taken.
    for needs_interface in (True, False):
        for selection in [*missing] if free else ():
            partners = (
                other
                for other in free
                if other.key == selection.key and (other.interface == selection.interface or not needs_interface)
            )
            if (partner := next(partners, None)) is not None:
                free.remove(partner)
                missing.remove(selection)
    return tuple(missing)


# --- the short form: a list such as prod/lan2@rail0,lan3 --------------------------------------------------

_MARKS = frozenset('[{",@')  # not allowed in an interface of the list
_SEPARATOR = re.compile(r"[\s;|]")  # what people write between networks
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
# Characters that Go's strings.TrimSpace removes; Python's strip() would also remove U+001C to U+001F.
_GO_SPACE = (
    " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def _parse_item(item: str, position: int, namespace: str) -> Selection:
    own_namespace, name, interface = _split_item(item.strip(_GO_SPACE), position)
    for part, noun in ((own_namespace, "namespace"), (name, "network")):
        if part and not _DNS_LABEL.fullmatch(part):
            raise InvalidNetworksError(
                position,
                f"{noun} {texts.quote(part)} is not a DNS label (lower-case letters, digits and '-'); "
                f"{'put commas between networks' if _SEPARATOR.search(part) else 'other names need the JSON form'}",
            )
    if not name:
        raise InvalidNetworksError(position, "is empty; remove the extra comma or name a network")
    check_interface_name(interface, position)
    return Selection(own_namespace or namespace, name, interface)


def _split_item(item: str, position: int) -> tuple[str, str, str]:
    front, _, rest = item.rpartition("/")
    if "/" in front:
        raise InvalidNetworksError(
            position,
            f"{texts.quote(item)} has more than one '/'; write namespace/name@interface, and commas between networks",
        )
    name, _, interface = rest.partition("@")
    if "@" in interface:
        raise InvalidNetworksError(
            position, f"{texts.quote(item)} has more than one '@'; write namespace/name@interface"
        )
    return front.strip(_GO_SPACE), name.strip(_GO_SPACE), interface.strip(_GO_SPACE)


def _format_item(attachment: Selection) -> str:
    """Return an attachment as an item of the comma-separated list."""
    item = f"{attachment.namespace}/{attachment.name}"
    return f"{item}@{attachment.interface}" if attachment.interface else item


def _fits_list(attachment: Selection) -> bool:
    """True if an item of the comma-separated list can express the attachment."""
    return (
        _DNS_LABEL.fullmatch(attachment.name) is not None
        and _DNS_LABEL.fullmatch(attachment.namespace) is not None
        and _MARKS.isdisjoint(attachment.interface)
    )


# --- the long form: a JSON array --------------------------------------------------------------------------

KEYS = (  # of an entry: multus-cni pkg/types/types.go, NetworkSelectionElement
    "name",
    "namespace",
    "interface",
    "interfaceRequest",  # before Multus 3.2
    "ips",
    "mac",
    "infiniband-guid",
    "portMappings",
    "bandwidth",
    "deviceID",
    "cni-args",
    "default-route",
    "ipam-claim-reference",  # Multus releases after 4.2.3
)
_FOLDED_KEYS = frozenset(key.casefold() for key in KEYS)
_MAX_SNIPPET = 20  # characters of a value, from where it stops being JSON
_JSON_FIX = (
    'Multus reads a value that contains one of [ { " as a JSON array: correct it, or write a list such as '
    "namespace/name@interface,namespace/name"
)


def _parse_array(text: str, namespace: str) -> tuple[Selection, ...]:
    """Return the attachments of a JSON array. Raises InvalidNetworksError."""
    try:
        entries = _DECODER.decode(text)
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
    if not isinstance(entry, dict):
        raise InvalidNetworksError(position, 'is not an object; write {"name": "...", "namespace": "..."}')
    texts = {}
    for key in ("name", "namespace", "interface", "interfaceRequest"):
        value = entry.get(key.lower(), "")
        if not isinstance(value, str):
            raise InvalidNetworksError(position, f'"{key}" must be a string')
        texts[key] = _LONE_SURROGATE.sub("\ufffd", value)  # as Go replaces it
    if not texts["name"]:
        raise InvalidNetworksError(position, 'has no "name"; name a network')
    interface = texts["interface"] or texts["interfaceRequest"]
    check_interface_name(interface, position)
    unknown_key = next((key for key in entry if key not in _FOLDED_KEYS), None)
    return Selection(texts["namespace"] or namespace, texts["name"], interface, "default-route" in entry, unknown_key)


def _read_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as Go decodes it: the case of Multus's keys is ignored, and null counts as absent."""
    return {_fold_case(key): value for key, value in pairs if value is not None}


def _fold_case(key: str) -> str:
    folded = key.casefold()
    return folded if folded in _FOLDED_KEYS else key  # others are reported as they are written


_DECODER = json.JSONDecoder(object_pairs_hook=_read_object)


def _append_to_array(text: str, missing: Sequence[Selection], *, empty: bool) -> str:
    """Insert the missing entries before the closing bracket. The user's bytes do not change."""
    head = text.rstrip()
    ours = _encode_array([_build_item(attachment) for attachment in missing])
    return f"{head[:-1]}{'' if empty else ','}{ours[1:]}{text[len(head) :]}"


def _build_item(attachment: Selection) -> dict[str, str]:
    """Return an attachment as an object of the array, without empty fields."""
    item = {"name": attachment.name, "namespace": attachment.namespace, "interface": attachment.interface}
    return {key: value for key, value in item.items() if value}


def _encode_array(entries: Sequence[dict[str, str]]) -> str:
    """Return the text of a JSON array."""
    return msgspec.json.encode(entries).decode()
