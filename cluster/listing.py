"""A kind listed once, page by page, for whoever ends then and needs no watch.

Owns the paging. Knows neither what the objects are for nor how a failure is told.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cluster import client as clients
from cluster import watch_wire

_PAGE = "500"  # objects an answer, as kubectl asks for


async def listed(client: clients.Client, path: str, view: Any, query: Mapping[str, str] | None = None) -> list[Any]:
    """All objects of `path`, read as `view`. Raises ClusterError and what `watch_wire.UNREADABLE` names."""
    decode = msgspec.json.Decoder(view).decode
    found: list[Any] = []
    more = ""
    while True:
        asked = {**(query or {}), "limit": _PAGE, **({"continue": more} if more else {})}
        page = await watch_wire.decoded(watch_wire.decode_list, await client.get(path, asked))
        found += [decode(item) for item in page.items or ()]
        more = page.metadata.continue_
        if not more:
            return found
