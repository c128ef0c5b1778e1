"""Where a server's knowledge comes from: watches of the API server, or files in its place; one shape for both.

Owns the choice, and what readiness and metrics ask of it: is everything read, and how old is it. Knows no server.
"""

import pathlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import files, policies, policy_map, reflector, resources, sinks

Task = Callable[[], Coroutine[Any, Any, None]]
Restarted = Callable[[str, str], None]
"""Called with (kind, reason) when a watch begins anew."""
Skipped = Callable[[str], None]
"""Called with the kind when an object cannot be read and is left out."""


_NEEDED = (resources.NODES.name, resources.PODS.name, resources.POLICY.name)  # kinds without which nothing is true


def _whole(obj: Any) -> Any:
    return obj


class Wanted(msgspec.Struct, frozen=True):
    """One kind to be fed into a sink: watched as `kind`, or read from a snapshot as `snapshot_kind`.

    `excerpt` gives what the sink needs of an object: the rest is let go before the next one is read. `gradual`: a part
    of the first list is better than nothing to the sink, which need not be told when it has all of it.
    """

    kind: resources.Kind
    snapshot_kind: str
    sink: sinks.Sink[Any]
    excerpt: Callable[[Any], Any] = _whole
    gradual: bool = False


class Sources:
    """The running sources of one server."""

    def __init__(self, store: policies.PolicyStore, client: clients.Client | None) -> None:
        self.store = store
        self.client = client  # None where files take the cluster's place
        self.policy_map = policy_map.PolicyConfigMap(store)
        self.tasks: list[Task] = []
        self._reflectors: dict[str, reflector.Reflector] = {}
        self._snapshot: files.SnapshotFile | None = None
        self._missing: dict[str, Callable[[], bool]] = {}

    def policy_problem(self) -> str:
        """For readiness: "" once any policy has been in force; the last good one is good enough."""
        if self.store.current is not None:
            return ""
        wrong = "; ".join(": ".join(filter(None, (error.path, error.message))) for error in self.store.errors[:3])
        return f"no valid policy yet{': ' + wrong if wrong else ''}"

    def cache_problem(self, stale_after: float | None = None) -> str:
        """For readiness: "" once everything was read once and nothing is older than `stale_after` seconds."""
        missing = [name for name, is_missing in self._missing.items() if is_missing()]
        if missing:
            return f"not read yet: {', '.join(missing)}"
        if stale_after is None:
            return ""
        ages = {name: each.age_seconds() for name, each in self._reflectors.items()}
        late = [f"{name} {age:.0f} s" for name, age in ages.items() if age > stale_after]
        return f"not heard of for too long: {', '.join(late)}" if late else ""

    def away(self) -> str:
        """Return why the API server is not heard of nodes, pods or the policy; "" while it is, and without one."""
        for name in _NEEDED:
            source = self._reflectors.get(name)
            if source is not None and source.failure is not None:
                return source.failure.sentence
        return ""

    def readings(self) -> dict[str, Any]:
        """What metrics show of all this, by the names `railwright.serving.metrics` gives it."""
        current = self.store.current
        return {
            "policy_valid": self.store.valid,
            "policy_generation": self.store.generation,
            "policy_digest": current.digest if current else None,
            "snapshot_generation": self._snapshot.generation if self._snapshot else None,
            "caches": [(name, each.age_seconds(), each.objects) for name, each in self._reflectors.items()],
        }

    def watch(self, wanted: Wanted, restarted: Restarted, skipped: Skipped = lambda _: None) -> None:
        """Feed a sink from the API server."""
        assert self.client is not None  # noqa: S101 - only called where there is one
        kind = wanted.kind
        source = reflector.Reflector(
            self.client,
            kind,
            wanted.sink,
            restarted=restarted,
            skipped=skipped,
            excerpt=wanted.excerpt,
            gradual=wanted.gradual,
        )
        self._reflectors[kind.name] = source
        self._missing[kind.name] = lambda: not source.synced.is_set()
        self.tasks.append(source.run)

    def read(self, path: pathlib.Path, wanted: Mapping[str, sinks.Sink[Any]]) -> None:
        """Feed sinks from a snapshot file."""
        source = files.SnapshotFile(path, wanted)
        self._snapshot = source
        self._missing["snapshot"] = lambda: not source.synced.is_set()
        self.tasks.append(source.run)


async def connected(  # noqa: PLR0913 - what a server is made from, by name
    *,
    kubeconfig: str | None,
    snapshot: pathlib.Path | None,
    policy: pathlib.Path | None,
    wanted: Sequence[Wanted],
    restarted: Restarted,
    skipped: Skipped = lambda _: None,
) -> Sources:
    """The sources for these options. Nothing runs until the caller runs `tasks`; raises errors of cluster.errors."""
    offline = snapshot is not None
    client = None if offline else await clients.connect(kubeconfig)
    sources = Sources(policies.PolicyStore(), client)
    if policy is not None:
        sources.tasks.append(files.PolicyFile(policy, sources.store).run)
    elif client is not None:
        sources.watch(Wanted(resources.POLICY, "ConfigMap", sources.policy_map), restarted, skipped)
    if snapshot is not None:
        sources.read(snapshot, {each.snapshot_kind: each.sink for each in wanted})
    else:
        for each in wanted:
            sources.watch(each, restarted, skipped)
    return sources
