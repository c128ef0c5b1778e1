"""How long requests that were ready at one moment have waited for each other, so that the last of them are not answered
too late.

Owns the length of one turn of the loop. A connection brings one request at a time and a turn takes whatever is ready,
so that nothing waits longer than the turn it came in and the one that answers it. Knows no request.
"""

import asyncio


class Turn:
    """The turn of the running loop that is being served. One loop owns it."""

    def __init__(self, most_seconds: float) -> None:
        self._most = most_seconds
        self._began: float | None = None

    def late(self, now: float) -> bool:
        """True where the turn has lasted so long that callers wait too long for what is still to be answered in it.

        `now` is of any clock that does not jump, in seconds.
        """
        if self._began is None:
            self._began = now
            asyncio.get_running_loop().call_soon(self._end)  # runs before anything that becomes ready from here on
            return False
        return now - self._began > self._most

    def _end(self) -> None:
        self._began = None
