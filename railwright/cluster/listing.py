"""Lists objects once, page by page, without a watch."""

from collections.abc import Mapping
from typing import Any

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors, failures, watch_wire

_PAGE = "500"  # objects per page, as kubectl requests
_GONE = 410


class _Page(watch_wire.List):
    """A page of a list. `items` is always present, null if there are none."""

    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET  # type: ignore[assignment]  # told apart


_decode_page = msgspec.json.Decoder(_Page).decode


async def list_objects(
    client: clients.Client, path: str, view: Any, query: Mapping[str, str] | None = None
) -> list[Any]:
    """Return all objects of `path`, decoded as `view`.

    Raises ClusterError, also for a response that is no list, and `watch_wire.UNREADABLE` for an object that cannot be
    decoded. If the list expires between pages, it is read again in one request, as client-go's pager does.
    """
    try:
        return await _list_pages(client, path, view, {**(query or {}), "limit": _PAGE})
    except errors.ApiError as error:
        if error.status != _GONE:
            raise
    return await _list_pages(client, path, view, query or {})


async def _list_pages(client: clients.Client, path: str, view: Any, query: Mapping[str, str]) -> list[Any]:
    decode = msgspec.json.Decoder(view).decode
    objects: list[Any] = []
    continuation = ""
    while True:
        page_query = {**query, **({"continue": continuation} if continuation else {})}
        answer = await client.get(path, page_query)
        try:
            page = await watch_wire.decode(_decode_page, answer)
        except watch_wire.UNREADABLE as error:
            raise failures.build_foreign(client.host, path, str(error)) from error
        if page.items is msgspec.UNSET:
            raise failures.build_foreign(client.host, path)
        objects += [decode(item) for item in page.items or ()]
        continuation = page.metadata.continue_
        if not continuation:
            return objects
