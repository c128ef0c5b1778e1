"""The overview over time, for whoever looks: redrawn while anybody does, at most twice a second, in small slices.

Owns the pace and the waiting. A reader asks for what is newer than what it has and waits where nothing is; a slow one
queues nothing, it merely gets several changes as one. Knows no HTTP.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from railwright.fabric.overview import deltas, picture

PACE_SECONDS = 0.5  # between two looks: faster than that nobody reads
READERS = 32  # at once; each may need the whole overview, half a megabyte for a thousand nodes


class CrowdedError(Exception):
    """There are READERS already."""


class Feed:
    """One overview and its readers. One event loop owns it."""

    def __init__(
        self,
        drawing: picture.Picture,
        *,
        source: str,
        problems: Callable[[], Sequence[str]] = tuple,
        away: Callable[[], str] = str,
        pace_seconds: float = PACE_SECONDS,
    ) -> None:
        self.picture = drawing
        self.readers = 0
        self._source, self._problems, self._away, self._pace = source, problems, away, pace_seconds
        self._deltas = deltas.Deltas()
        self._changed, self._wanted = asyncio.Event(), asyncio.Event()

    @property
    def version(self) -> int:
        """Of the newest change; 0 before anything was drawn."""
        return self._deltas.version

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Within it there is one more reader. Raises CrowdedError."""
        if self.readers >= READERS:
            raise CrowdedError(f"{READERS} readers are connected already: close one of the pages")
        self.readers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self.readers -= 1
            if not self.readers:
                self._wanted.clear()

    async def after(self, version: int | None, seconds: float) -> deltas.Delta | None:
        """What is newer than `version`, everything where None; None where nothing came within `seconds`."""
        if self.version in (0, version):
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return None
        return self._deltas.since(version)

    async def run(self) -> None:
        """Redraw for ever, while anybody reads."""
        while True:
            await self._wanted.wait()
            for _ in self.picture.refresh():
                await asyncio.sleep(0)  # a server does this beside its real work
            overview = self.picture.overview(source=self._source, problems=self._problems(), away=self._away())
            if self._deltas.show(overview):
                self._changed.set()
                self._changed = asyncio.Event()
            await asyncio.sleep(self._pace)
