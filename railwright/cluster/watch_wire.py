"""Lists and watches as the API server writes them: pages, events, statuses, and what tells one object from another.

Owns what of them is read, and nothing of when. Objects stay bytes here: their kinds have views of their own.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from railwright.cluster import errors


class ListMeta(msgspec.Struct, rename="camel"):
    """metadata of a page; `continue_` asks for the next one."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class List(msgspec.Struct):
    """A page; Go writes an empty list as null."""

    items: list[msgspec.Raw] | None = None
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)


class Event(msgspec.Struct):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class Identity(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What tells an object of a kind from the others, and from what it was before."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> "Key":
        """What it is called among its kind."""
        return self.namespace, self.name

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Identified(msgspec.Struct):
    """Any object, as far as it tells which."""

    metadata: Identity = Identity()


Key = tuple[str, str]  # namespace, name
T = TypeVar("T")


class Details(msgspec.Struct, rename="camel"):
    """details of a Status."""

    retry_after_seconds: float = 0.0


class Status(msgspec.Struct):
    """What an ERROR event holds."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


_LEVELS = 100  # of a page or an event that are kept where it nests too deep: no view of ours reads half as far
_BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)  # strings too, to pass over what is in them
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # the last: an object nested without end
decode_event = msgspec.json.Decoder(Event).decode
decode_list = msgspec.json.Decoder(List).decode
decode_identified = msgspec.json.Decoder(Identified).decode
decode_status = msgspec.json.Decoder(Status).decode


async def decoded(decode: Callable[[bytes], T], text: bytes) -> T:
    """A page or an event, whatever is in it: one object nested without end keeps no other of its kind away."""
    try:
        return decode(text)
    except RecursionError:
        return decode(await asyncio.to_thread(shallow, text))


def shallow(text: bytes) -> bytes:
    """JSON text without what lies deeper than _LEVELS: that is null then. Slow, a second for some MB.

    API servers take 10,000 levels, from whoever may create an object of a kind without a full schema; msgspec, 1,000.
    """
    return b"null".join(_kept(text))


def _kept(text: bytes) -> Iterator[bytes]:
    """The text in parts, cut where something was too deep."""
    depth = begin = 0
    for found in _BRACKETS.finditer(text):
        if found[0] in {b"{", b"["}:
            depth += 1
            if depth == _LEVELS + 1:
                yield text[begin : found.start()]
        elif found[0] in {b"}", b"]"}:
            depth -= 1
            if depth == _LEVELS:
                begin = found.end()
    yield text[begin:]


def number(version: str) -> int:
    """A version as Kubernetes compares them since 1.35 (KEP 5504); 0 where it is no number."""
    return int(version) if version.isascii() and version.isdigit() else 0


def told_in_stream(status: Status, path: str) -> errors.ApiError:
    """The error that a watch was ended with."""
    asked = status.details.retry_after_seconds if status.details else 0.0
    return errors.ApiError(status.code, status.reason, status.message, path, retry_after=asked)
