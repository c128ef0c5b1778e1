"""Lets only the leader answer schedulers, while the other replicas stand by with synced caches.

Gates the scheduling handlers and reacts to a change of leader. `railwright.cluster.lease` runs the election, and
`endpoints` routes callers to the leader. Two replicas never assume pods at the same time: one that loses the Lease
stops answering before another can acquire it, and forgets its assumed pods before it leads again.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from extender import decider
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, lease
from railwright.serving import metrics, routes

_PARTS = {"pod": "POD_NAME", "namespace": "POD_NAMESPACE", "ip": "POD_IP"}
_LOG = logging.getLogger("railwright.extender")


class PodAddress(msgspec.Struct, frozen=True):
    """Name, namespace and IP address of this process's pod, from the downward API."""

    pod: str
    namespace: str
    ip: str


def get_pod_address(environ: Mapping[str, str]) -> PodAddress:
    """Return the pod's address from environment variables. Raises ConfigurationError if some are missing."""
    if missing := [variable for variable in _PARTS.values() if not environ.get(variable)]:
        raise errors.ConfigurationError(
            f"--leader-elect: {', '.join(missing)} not set: set them from the downward API (metadata.name, "
            "metadata.namespace, status.podIP), as manifests/base/extender.yaml does"
        )
    return PodAddress(**{name: environ[variable] for name, variable in _PARTS.items()})


def build_timings(seconds: float) -> lease.Timings:
    """Return the timings of a Lease with this duration, in the proportions of client-go's 15, 10 and 2 seconds."""
    return lease.Timings(duration=seconds, renew=seconds * 2 / 3, retry=seconds * 2 / 15)


class Leadership:
    """This process's role, leader or standby."""

    def __init__(self, deciding: decider.Decider, counters: metrics.Metrics) -> None:
        self._decider, self._counters = deciding, counters
        self._listeners: Sequence[Callable[[bool], None]] = ()
        self._term: int | None = None
        self.election: lease.Election | None = None  # None without other replicas: this one leads

    def build_election(
        self, client: clients.Client, address: PodAddress, *, seconds: float, eligible: Callable[[], bool]
    ) -> lease.Election:
        """Return an election for the caller to run. This process is a candidate while `eligible` is true."""
        self.election = lease.Election(
            client,
            address.namespace,
            installed_names.EXTENDER,
            lease.create_identity(address.pod),
            timings=build_timings(seconds),
            changed=self._handle_change,
            eligible=eligible,
        )
        return self.election

    def notify(self, *listeners: Callable[[bool], None]) -> None:
        """Call the listeners now and at each change, with True if this process leads."""
        self._listeners = listeners
        for listener in listeners:
            listener(self.is_leader)

    @property
    def is_leader(self) -> bool:
        """True if this process answers schedulers."""
        return self.election is None or self.election.leading

    def resign(self) -> None:
        """Release the Lease, if there is an election."""
        if self.election is not None:
            self.election.resign()

    def gate(self, table: Sequence[routes.Route]) -> list[routes.Route]:
        """Return the routes, answered with 503 and the leader's name while this process stands by."""
        return [route._replace(handle=self._gate(route.handle)) for route in table]

    def _gate(self, handle: routes.Handle) -> routes.Handle:
        def answer(call: routes.Call) -> routes.Reply | Awaitable[routes.Reply]:
            if not self.is_leader:
                raise routes.HttpError(503, self._format_standby())
            return handle(call)

        return answer

    def _format_standby(self) -> str:
        holder = self.election.holder if self.election else ""
        leader = f"{holder.rpartition('_')[0]} leads" if holder else "nobody leads yet"
        return f"this extender stands by: {leader}; reconnect to the Service {installed_names.EXTENDER}"

    def _handle_change(self, is_leader: bool) -> None:  # noqa: FBT001 - a state
        self._counters.leader_transitions.inc()
        if is_leader and self.election is not None:
            if self._term == self.election.term:
                self._decider.forget_sessions()
            elif self._term is not None:
                self._decider.forget()  # another replica has led meanwhile, so the assumed pods are outdated
            self._term = self.election.term
        for listener in self._listeners:
            listener(is_leader)
