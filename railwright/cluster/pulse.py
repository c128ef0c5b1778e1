"""Polls the API server: a watch without events looks the same as a dead connection.

The dashboard uses it to show that the cluster is unreachable. Responses are discarded.
"""

import asyncio

from railwright.cluster import client as clients
from railwright.cluster import errors, failures

EVERY_SECONDS = 5.0
ANSWER_SECONDS = 5.0
_PATH = "/version"


class Pulse:
    """Polls one API server."""

    def __init__(self, client: clients.Client, *, every: float = EVERY_SECONDS, within: float = ANSWER_SECONDS) -> None:
        self._client, self._every, self._within = client, every, within
        self.failure = ""

    async def run(self) -> None:
        """Poll until cancelled; `failure` is the error of the last poll, "" if it succeeded."""
        while True:
            self.failure = await self._poll()
            await asyncio.sleep(self._every)

    async def _poll(self) -> str:
        try:
            async with asyncio.timeout(self._within):
                await self._client.get(_PATH)
        except TimeoutError as error:
            return failures.build_unreachable(self._client.host, _PATH, error).sentence
        except errors.ApiError as error:
            # missing permission for /version is no failure; the watches report rejected credentials and renew them
            return error.sentence if error.foreign else ""
        except errors.ClusterError as error:
            return error.sentence
        return ""
