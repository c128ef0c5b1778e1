"""The rotator: reads the cluster, makes the next change, and measures how long nothing has changed.

Measures by a monotonic clock. `rotation` decides on steps; the caller decides which replica rotates.
"""

import datetime as dt
from collections.abc import Callable, Sequence

from certs import bundle, installation, inventory, rotation, schedules, steps
from railwright.cluster import client as clients
from railwright.cluster import errors

CONFLICTS = frozenset({409, 422})  # conflict of a merge patch; failed version test of a JSON Patch


class Rotator:
    """Rotates the certificates of one namespace, one step at a time."""

    def __init__(  # noqa: PLR0913 - the parameters of an installation, all by name
        self,
        client: clients.Client,
        namespace: str,
        specs: Sequence[bundle.CertificateSpec],
        *,
        schedule: schedules.Schedule,
        clock: Callable[[], float],
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        """`clock` is monotonic, in seconds; `now` is the wall clock, which dates certificates."""
        self._client, self._namespace, self._specs = client, namespace, specs
        self._schedule, self._clock, self._now = schedule, clock, now
        self._hosts = frozenset(host for spec in specs if spec.name == "webhook" for host in spec.hosts)
        self._fingerprint: tuple[object, ...] | None = None
        self._unchanged_since = 0.0  # time of the last change
        self.state: installation.ClusterState | None = None

    def forget(self) -> None:
        """Discard the state with the CA's private key, because another replica rotates now."""
        self.state = None

    async def step(self, *, renew_ca: bool = False) -> rotation.Step | rotation.Wait:
        """Read the state and make the step that is due, if any.

        Raises ClusterError; after ApiError with CONFLICTS call again.
        """
        names = [inventory.CA, *(spec.name for spec in self._specs)]
        state = await installation.read_state(self._client, self._namespace, names, self._hosts)
        self.state = state
        if state.fingerprint != self._fingerprint:
            self._fingerprint, self._unchanged_since = state.fingerprint, self._clock()
        now = self._now()
        result = rotation.plan(
            state.observed,
            self._specs,
            now=now,
            schedule=self._schedule,
            unchanged_for=dt.timedelta(seconds=self._clock() - self._unchanged_since),
            renew_ca=renew_ca,
        )
        if isinstance(result, rotation.Step):
            changes = steps.build_changes(result, state.observed, self._specs, now=now, schedule=self._schedule)
            try:
                await installation.write(self._client, state, changes)
            except errors.ClusterError:
                self._fingerprint = None  # it is unknown which writes succeeded
                raise
        return result
