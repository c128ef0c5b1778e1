"""Reads rails.json, the rails that a pod's preflight found (docs/interface.md 5.3)."""

import msgspec


class FoundRail(msgspec.Struct, frozen=True):
    """A rail as the preflight found it. A field is None if its value was not found."""

    name: str
    device: str | None = None
    port: int | None = None
    interface: str | None = None
    pci: str | None = None


class FoundRails(msgspec.Struct, frozen=True):
    """The rails of a container. `rails` is () if there is no file."""

    rails: tuple[FoundRail, ...] = ()


def parse_rails(text: str) -> FoundRails:
    """Return the rails in the text of rails.json, or in a log of the preflight, in which the file is one line."""
    for candidate in (text, *(line for line in text.splitlines() if line.startswith("{"))):
        try:
            return msgspec.json.decode(candidate, type=FoundRails)
        except (msgspec.MsgspecError, RecursionError):
            continue
    return FoundRails()
