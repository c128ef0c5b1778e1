"""Network attachments of a pod as Multus sees them, their interface names, and the rules of Multus and the kernel."""

from collections.abc import Sequence

import msgspec

from railwright.fabric import text as texts

MAX_INTERFACE = 15  # characters: IFNAMSIZ of the Linux kernel without its terminator
LOOPBACK = "lo"
CRI_INTERFACE = "eth0"  # all container runtimes give this name to the cluster network
_ALL_DOTS = frozenset({b".", b".."})
_NOT_IN_NAMES = frozenset(b"/:% \t\n\v\f\r\xa0")  # bytes; the kernel reads 0xa0 as a space and % as a pattern
_MAX_QUOTED = 80  # characters of an invalid entry in an error message


class InvalidNetworksError(ValueError):
    """Raised if Multus would reject the value. `position` counts entries from 1; 0 stands for the entire value."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"entry {position}: {problem}" if position else problem)
        self.position = position
        self.problem = problem


class Selection(msgspec.Struct, frozen=True):
    """A network attachment as Multus sees it."""

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
            network = quote("/".join(selections[position - 1].key))
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


def check_name(interface: str, position: int) -> None:
    """Raise InvalidNetworksError for a name that the kernel would reject (net/core/dev.c, dev_valid_name)."""
    name = interface.encode(errors="replace")
    if len(name) > MAX_INTERFACE:
        raise InvalidNetworksError(
            position, f"interface {quote(interface)} is longer than {MAX_INTERFACE} characters; shorten it"
        )
    if name in _ALL_DOTS or not _NOT_IN_NAMES.isdisjoint(name):
        raise InvalidNetworksError(
            position, f"interface {quote(interface)} contains a space, '/', ':' or '%', or is all dots; rename it"
        )


def quote(text: str) -> str:
    """Return a user's text for a message: quoted, escaped and truncated."""
    return repr(texts.abbreviate(text, _MAX_QUOTED))
