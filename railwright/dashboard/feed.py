"""Keeps the overview up to date while it has readers: at most two refreshes a second, in small steps.

A reader asks for changes since its version and waits if there are none. A slow reader queues nothing; it receives
several changes as one.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from railwright.fabric.overview import deltas, overview_builder, overview_types

PACE_SECONDS = 0.5  # between two refreshes; faster updates are of no use to a person
READERS = 32  # concurrent readers; each may need the complete overview, half a megabyte for a thousand nodes


class CrowdedError(Exception):
    """The maximum number of readers is connected."""


class Feed:
    """One overview and its readers. Owned by one event loop."""

    def __init__(
        self,
        builder: overview_builder.OverviewBuilder,
        *,
        source: str,
        connection: Callable[[], overview_types.Connection] = overview_types.Connection,
        pace_seconds: float = PACE_SECONDS,
    ) -> None:
        """`source`: the cluster or file, as the header shows it. `connection`: how current its data is."""
        self.builder = builder
        self.readers = 0
        self.source = source
        self.mean_bandwidth: float | None = None  # of the placed gangs, modelled; None if there is none
        self._connection, self._pace = connection, pace_seconds
        self._deltas = deltas.Deltas()
        self._changed, self._has_readers = asyncio.Event(), asyncio.Event()

    @property
    def version(self) -> int:
        """Version of the newest change; 0 before the first refresh."""
        return self._deltas.version

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count one more reader during the context. Raises CrowdedError."""
        if self.readers >= READERS:
            raise CrowdedError(f"{READERS} readers are connected already: close one of the dashboard's pages")
        self.readers += 1
        self._has_readers.set()
        try:
            yield
        finally:
            self.readers -= 1
            if not self.readers:
                self._has_readers.clear()

    async def after(self, version: int | None, seconds: float) -> deltas.Delta | None:
        """Return the change since `version` (None: everything), or None if there is none within `seconds`."""
        if self.version in (0, version):
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return None
        return self._deltas.compute_delta(version)

    async def run(self) -> None:
        """Refresh until cancelled, while there are readers."""
        while True:
            await self._has_readers.wait()
            for _ in self.builder.refresh(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())):
                await asyncio.sleep(0)  # yield to the server's real work
            overview = self.builder.build_overview(source=self.source, connection=self._connection())
            self.mean_bandwidth = _compute_mean(overview.gangs)
            if self._deltas.update(overview):
                self._changed.set()
                self._changed = asyncio.Event()
            await asyncio.sleep(self._pace)


def _compute_mean(gangs: Sequence[overview_types.Gang]) -> float | None:
    bandwidths = [gang.bandwidth for gang in gangs if gang.bandwidth is not None]
    return round(sum(bandwidths) / len(bandwidths), 2) if bandwidths else None


Views = Mapping[str, Feed]
"""Name -> feed of one overview; the page has a switch if there are several. The first is the default."""
