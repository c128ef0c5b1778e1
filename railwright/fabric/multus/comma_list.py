"""The comma list: the short form of Multus's annotation, such as prod/lan2@rail0,lan3."""

import re

from railwright.fabric.multus import network_selection

_MARKS = frozenset('[{",@')  # not allowed in an interface of the list
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
# Characters that Go's strings.TrimSpace removes; Python's strip() would also remove U+001C to U+001F.
_GO_SPACE = (
    " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def parse(text: str, namespace: str) -> tuple[network_selection.Selection, ...]:
    """Return the attachments of a list. Raises InvalidNetworksError."""
    return tuple(_parse_item(item, position, namespace) for position, item in enumerate(text.split(","), start=1))


def _parse_item(item: str, position: int, namespace: str) -> network_selection.Selection:
    own_namespace, name, interface = _split_item(item.strip(_GO_SPACE), position)
    for part, noun in ((own_namespace, "namespace"), (name, "network")):
        if part and not _DNS_LABEL.fullmatch(part):
            raise network_selection.InvalidNetworksError(
                position,
                f"{noun} {network_selection.quote(part)} is not a DNS label (lower-case letters, digits and '-'); "
                "other names need the JSON form",
            )
    if not name:
        raise network_selection.InvalidNetworksError(position, "is empty; remove the extra comma or name a network")
    network_selection.check_name(interface, position)
    return network_selection.Selection(own_namespace or namespace, name, interface)


def _split_item(item: str, position: int) -> tuple[str, str, str]:
    front, _, rest = item.rpartition("/")
    if "/" in front:
        raise network_selection.InvalidNetworksError(
            position, f"{network_selection.quote(item)} has more than one '/'; write namespace/name@interface"
        )
    name, _, interface = rest.partition("@")
    if "@" in interface:
        raise network_selection.InvalidNetworksError(
            position, f"{network_selection.quote(item)} has more than one '@'; write namespace/name@interface"
        )
    return front.strip(_GO_SPACE), name.strip(_GO_SPACE), interface.strip(_GO_SPACE)


def format_item(attachment: network_selection.Selection) -> str:
    """Return an attachment as an item of the list."""
    item = f"{attachment.namespace}/{attachment.name}"
    return f"{item}@{attachment.interface}" if attachment.interface else item


def fits(attachment: network_selection.Selection) -> bool:
    """True if the list can express the attachment."""
    return (
        _DNS_LABEL.fullmatch(attachment.name) is not None
        and _DNS_LABEL.fullmatch(attachment.namespace) is not None
        and _MARKS.isdisjoint(attachment.interface)
    )
