"""One extender answers, the others stand by with their caches full: who may, and what the others say.

Owns the gate in front of the scheduling verbs and what happens at a change of leaders. The election is
`railwright.cluster.lease`'s, the way callers find the leader `publication`'s. Two ledgers never grow side by side: who
has lost the Lease stops answering before another can have it, and forgets what it was told before it leads again.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from extender import schedulers
from railwright.cluster import client as clients
from railwright.cluster import errors, lease
from railwright.fabric import names
from railwright.serving import metrics, routes

_PARTS = {"pod": "POD_NAME", "namespace": "POD_NAMESPACE", "ip": "POD_IP"}
_LOG = logging.getLogger("railwright.extender")


class Place(msgspec.Struct, frozen=True):
    """Where this process runs, by the downward API."""

    pod: str
    namespace: str
    ip: str


def place(environ: Mapping[str, str]) -> Place:
    """Raises ConfigurationError for variables that are missing."""
    if missing := [variable for variable in _PARTS.values() if not environ.get(variable)]:
        raise errors.ConfigurationError(
            f"--leader-elect: {', '.join(missing)} not set: give them from the downward API (metadata.name, "
            "metadata.namespace, status.podIP), as manifests/base/extender.yaml does"
        )
    return Place(**{name: environ[variable] for name, variable in _PARTS.items()})


def timings(seconds: float) -> lease.Timings:
    """The timings of a Lease of so many seconds, in the proportions of client-go's 15, 10 and 2 seconds."""
    return lease.Timings(duration=seconds, renew=seconds * 2 / 3, retry=seconds * 2 / 15)


class Leading:
    """This process's part: leader or standby."""

    def __init__(self, verbs: schedulers.Schedulers, counters: metrics.Metrics) -> None:
        self._verbs, self._counters = verbs, counters
        self._told: Sequence[Callable[[bool], None]] = ()
        self._term: int | None = None
        self.election: lease.Election | None = None  # None: there is no other, so this one leads

    def stand(
        self, client: clients.Client, at: Place, *, seconds: float, eligible: Callable[[], bool]
    ) -> lease.Election:
        """Become a candidate, for others to run; `eligible` while this process knows the cluster well enough."""
        self.election = lease.Election(
            client,
            at.namespace,
            names.EXTENDER_SERVICE,
            lease.identity(at.pod),
            timings=timings(seconds),
            changed=self._change,
            eligible=eligible,
        )
        return self.election

    def tell(self, *told: Callable[[bool], None]) -> None:
        """These are told of each change, and now."""
        self._told = told
        for each in told:
            each(self.now)

    @property
    def now(self) -> bool:
        """True while this process answers schedulers."""
        return self.election is None or self.election.leading

    def resign(self) -> None:
        """Hand over now, where there is somebody to take over."""
        if self.election is not None:
            self.election.resign()

    def gated(self, table: Sequence[routes.Route]) -> list[routes.Route]:
        """The same routes, answered with 503 and the leader's name while this process stands by."""
        return [route._replace(handle=self._gate(route.handle)) for route in table]

    def _gate(self, handle: routes.Handle) -> routes.Handle:
        def answer(call: routes.Call) -> routes.Reply | Awaitable[routes.Reply]:
            if not self.now:
                raise routes.HttpError(503, self._standby())
            return handle(call)

        return answer

    def _standby(self) -> str:
        holder = self.election.holder if self.election else ""
        leader = f"{holder.rpartition('_')[0]} leads" if holder else "nobody leads yet"
        return f"this extender stands by: {leader}; connect anew, to the Service {names.EXTENDER_SERVICE}"

    def _change(self, leads: bool) -> None:  # noqa: FBT001 - a state
        self._counters.leader_transitions.inc()
        if leads and self.election is not None:
            if self._term == self.election.term:
                self._verbs.interrupted()
            elif self._term is not None:
                self._verbs.forget()  # another has led meanwhile: what schedulers told us is history
            self._term = self.election.term
        for each in self._told:
            each(leads)
