"""The wire format of lists and watches: pages, events, statuses, and the identity of objects.

Objects stay undecoded here: each kind has its own view.
"""

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata of a page; `continue_` requests the next one."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class List(msgspec.Struct):
    """A page of a list. `items` is always present; Go encodes an empty list as null."""

    items: list[msgspec.Raw] | None
    metadata: ListMeta = ListMeta()


class Event(msgspec.Struct):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class Identity(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The name, uid and version of an object."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> "Key":
        """The unique key of the object within its kind."""
        return self.namespace, self.name

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class IdentifiedObject(msgspec.Struct):
    """Any object, of which only the identity is decoded."""

    metadata: Identity = Identity()


Key = tuple[str, str]  # namespace, name
T = TypeVar("T")


GONE = 410  # status of pages that took longer than the API server keeps a version
_NOT_FOUND = 404
_PAGE = "500"  # objects per page, as kubectl requests
_LEVELS = 100  # that are decoded of a page or event that nests too deeply; our views need fewer than half of them
# runs of brackets; strings too, to skip brackets in them
_BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]+|[\]}]+', re.DOTALL)
# RecursionError: an object that nests too deeply
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
decode_event = msgspec.json.Decoder(Event).decode
decode_list = msgspec.json.Decoder(List).decode
decode_identified = msgspec.json.Decoder(IdentifiedObject).decode


async def decode(decode: Callable[[bytes], T], text: bytes) -> T:
    """Decode a page or an event. Values that nest too deeply become null, so that other objects stay readable."""
    try:
        return decode(text)
    except RecursionError:
        return decode(await asyncio.to_thread(cut_deep_values, text))


async def read_pages(
    client: clients.Client, path: str, query: Mapping[str, str], headers: Mapping[str, str] | None = None
) -> AsyncGenerator[List, None]:
    """Yield the pages of a list. Raises ClusterError, also if the response is not a list."""
    while True:
        body = await client.get(path, query, headers)
        try:
            page = await decode(decode_list, body)
        except UNREADABLE as error:
            raise errors.build_foreign_error(client.host, path, str(error)) from error
        yield page
        if not page.metadata.continue_:
            return
        query = {**query, "continue": page.metadata.continue_}


async def find_object(client: clients.Client, path: str, view: type[T]) -> T | None:
    """Return the object at `path`, None if it does not exist. Raises ClusterError, as `decode_object` does too."""
    try:
        return decode_object(client, path, await client.get(path), view)
    except errors.ApiError as error:
        if error.status != _NOT_FOUND or error.foreign:
            raise
        return None


def decode_object(client: clients.Client, path: str, body: bytes, view: type[T]) -> T:
    """Return the decoded object. Raises ForeignError if it does not decode as this view."""
    try:
        return msgspec.json.decode(body, type=view)
    except UNREADABLE as error:
        raise errors.build_foreign_error(client.host, path, str(error)) from None


async def list_objects(  # noqa: PLR0913 - the parts of a request, by name
    client: clients.Client,
    path: str,
    view: Any,
    query: Mapping[str, str] | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    most: float = math.inf,
) -> list[Any]:
    """Return the objects of `path`, decoded as `view`: all, or as many pages as hold `most`.

    Raises ClusterError, also for a response that is no list, and for an object that cannot be decoded.
    """
    read, objects = msgspec.json.Decoder(view).decode, list[Any]()
    try:
        async for page in read_pages(client, path, {**(query or {}), "limit": _PAGE}, headers):
            objects += map(read, page.items or ())
            if len(objects) >= most:
                break
    except UNREADABLE as error:
        plural, cause = path.rpartition("/")[2], errors.quote_message(str(error))
        reason = f"one of the {plural} cannot be decoded{cause and f': {cause}'}"
        fix = f"correct the object; `kubectl get {plural} -A -o json` shows all"
        raise errors.ForeignError(f"{path}: {error}", reason=reason, fix=fix) from None
    return objects


def cut_deep_values(text: bytes) -> bytes:
    """Return JSON text with null in place of values below _LEVELS levels. Takes up to a second for several MB.

    API servers accept 10,000 levels for kinds without a full schema; msgspec accepts 1,000.
    """
    parts: list[bytes] = []
    depth = begin = 0
    for match in _BRACKETS.finditer(text):
        brackets = match[0]
        if brackets[0] in b"{[":
            if depth <= _LEVELS < depth + len(brackets):
                parts.append(text[begin : match.start() + _LEVELS - depth])
            depth += len(brackets)
        elif brackets[0] in b"}]":
            if depth - len(brackets) <= _LEVELS < depth:
                begin = match.start() + depth - _LEVELS
            depth -= len(brackets)
    return b"null".join([*parts, text[begin:]])
