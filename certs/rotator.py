"""The rotator: looks at the cluster, does the next step, and knows for how long nothing has changed.

Owns that time, by a clock that nobody sets, and the retries of a look that another writer has overtaken. What a step
is and when it is due is `rotation`'s; who may write is the caller's affair.
"""

import datetime as dt
from collections.abc import Callable, Sequence

from certs import bundle, installation, inventory, rotation, steps
from railwright.cluster import client as clients
from railwright.cluster import errors

OVERTAKEN = frozenset({409, 422})  # a merge patch with an old version; a JSON Patch whose version test fails


class Rotator:
    """The certificates of one namespace. One step at a time."""

    def __init__(  # noqa: PLR0913 - what an installation varies, all by name
        self,
        client: clients.Client,
        namespace: str,
        wanted: Sequence[bundle.Wanted],
        *,
        schedule: rotation.Schedule,
        clock: Callable[[], float],
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        """`clock` counts seconds and is never set; `now` is the wall clock, which certificates are dated by."""
        self._client, self._namespace, self._wanted = client, namespace, wanted
        self._schedule, self._clock, self._now = schedule, clock, now
        self._hosts = frozenset(host for leaf in wanted if leaf.name == "webhook" for host in leaf.hosts)
        self._mark: tuple[object, ...] | None = None
        self._same = 0.0  # since when looks have shown the same
        self.looked: installation.Look | None = None

    def forget(self) -> None:
        """Drop the last look, and with it the authority's private key: another replica rotates now."""
        self.looked = None

    async def step(self, *, renew_authority: bool = False) -> rotation.Step | rotation.Wait:
        """Look, and do what is due, if anything is. Raises ClusterError; ApiError of OVERTAKEN means: look again."""
        names = [inventory.AUTHORITY, *(leaf.name for leaf in self._wanted)]
        looked = await installation.look(self._client, self._namespace, names, self._hosts)
        self.looked = looked
        if looked.mark != self._mark:
            self._mark, self._same = looked.mark, self._clock()
        now = self._now()
        found = rotation.plan(
            looked.seen,
            self._wanted,
            now=now,
            schedule=self._schedule,
            steady=dt.timedelta(seconds=self._clock() - self._same),
            renew_authority=renew_authority,
        )
        if isinstance(found, rotation.Step):
            writes = steps.perform(found, looked.seen, self._wanted, now=now, schedule=self._schedule)
            try:
                await installation.write(self._client, looked, writes)
            except errors.ClusterError:
                self._mark = None  # how far the writes came is not known
                raise
        return found
