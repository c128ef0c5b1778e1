"""Ask the API server every few seconds whether it answers: a watch in which nothing happens looks like a dead one.

Owns the asking, for a page that must not look alive over a cluster that is gone. Stores nothing of the answer.
"""

import asyncio

from railwright.cluster import client as clients
from railwright.cluster import errors, failures

EVERY_SECONDS = 5.0
ANSWER_SECONDS = 5.0
_PATH = "/version"


class Pulse:
    """One API server."""

    def __init__(self, client: clients.Client, *, every: float = EVERY_SECONDS, within: float = ANSWER_SECONDS) -> None:
        self._client, self._every, self._within = client, every, within
        self.failure = ""

    async def run(self) -> None:
        """Ask for ever; `failure` says why there was no answer to the last question, "" where there was one."""
        while True:
            self.failure = await self._asked()
            await asyncio.sleep(self._every)

    async def _asked(self) -> str:
        try:
            async with asyncio.timeout(self._within):
                await self._client.get(_PATH)
        except TimeoutError as error:
            return failures.unreachable(self._client.host, _PATH, error).sentence
        except errors.ApiError as error:
            # who may ask for objects and not for the version is told by the watches; they renew credentials, too
            return error.sentence if error.foreign else ""
        except errors.ClusterError as error:
            return error.sentence
        return ""
