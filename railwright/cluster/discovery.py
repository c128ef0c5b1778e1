"""Asks the API server which API groups and versions it serves. Everyone may, by the role `system:discovery`."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from railwright.cluster import client as clients
from railwright.cluster import errors

_LOG = logging.getLogger(__name__)
_INTERVAL_SECONDS, _RETRY_SECONDS, _IDLE_SECONDS = 60.0, 5.0, 0.5
_NOT_FOUND = 404


async def find_served(client: clients.Client, apis: Iterable[str]) -> frozenset[str]:
    """Return those of these APIs, each GROUP/VERSION, that are served. Raises ClusterError."""
    served = set()
    for api in apis:
        try:
            await client.get(f"/apis/{api}")
        except errors.ApiError as error:
            if error.status != _NOT_FOUND:
                raise
        else:
            served.add(api)
    return frozenset(served)


async def keep_asking(
    client: clients.Client, list_apis: Callable[[], Iterable[str]], report: Callable[[frozenset[str]], None]
) -> None:
    """Report every minute which of the listed APIs are served. An answer that fails changes nothing."""
    while True:
        pause = _IDLE_SECONDS
        if apis := tuple(list_apis()):
            try:
                report(await find_served(client, apis))
                pause = _INTERVAL_SECONDS
            except errors.ClusterError as error:
                _LOG.info("served APIs unknown: %s", error)
                pause = _RETRY_SECONDS
        await asyncio.sleep(pause)
