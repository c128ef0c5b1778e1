"""Sources of a server's data: watches of the API server, or files in its place, behind one interface.

Also reports to readiness and metrics whether everything was read, and how old it is.
"""

import pathlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors, files, policies, policy_objects, resources, sinks
from railwright.cluster import reflector as reflectors

Task = Callable[[], Coroutine[Any, Any, None]]
Restarted = Callable[[str, str], None]
"""Called with (kind, reason) when a watch is restarted."""
Skipped = Callable[[str], None]
"""Called with the kind when an object cannot be decoded and is skipped."""


# kinds without which no decision is possible
_NEEDED = (resources.NODES.name, resources.PODS.name, resources.POLICY.name, resources.FABRIC_POLICIES.name)
_REFUSED = frozenset({401, 403})


def return_whole(obj: Any) -> Any:
    """Return the object: the excerpt of a sink that needs all of it."""
    return obj


class WatchSpec(msgspec.Struct, frozen=True):
    """One kind to feed into a sink: watched, or read from a snapshot.

    `excerpt` returns the part of an object that the sink needs; the rest is freed before the next object is decoded.
    `gradual`: the sink accepts a part of the first list.
    """

    kind: resources.Kind
    sink: sinks.Sink[Any]
    excerpt: Callable[[Any], Any] = return_whole
    gradual: bool = False


class Sources:
    """The running sources of one server."""

    def __init__(self, store: policies.PolicyStore, client: clients.Client | None) -> None:
        self.store = store
        self.client = client  # None if files replace the cluster
        self.policy_objects = policy_objects.PolicyObjects(store, is_resource_watched=client is not None)
        self.tasks: list[Task] = []
        self._reflectors: dict[str, reflectors.Reflector] = {}
        self._snapshot: files.SnapshotFile | None = None
        self._missing: dict[str, Callable[[], bool]] = {}

    def find_policy_problem(self) -> str:
        """Return the readiness problem of the policy; "" once any policy has been in force."""
        if self.store.current is not None:
            return ""
        wrong = "; ".join(map(str, self.store.errors[:3]))
        return f"no valid policy yet{': ' + wrong if wrong else ''}"

    def cache_problem(self, stale_after: float | None = None) -> str:
        """Return the readiness problem of the caches; "" once all are read and none is older than `stale_after`
        seconds.
        """
        missing = [name for name, is_missing in self._missing.items() if is_missing()]
        if missing:
            return f"not read yet: {', '.join(missing)}"
        if stale_after is None:
            return ""
        ages = {name: reflector.get_age_seconds() for name, reflector in self._reflectors.items()}
        late = [f"{name} {age:.0f} s" for name, age in ages.items() if age > stale_after]
        return f"no contact for too long: {', '.join(late)}" if late else ""

    def find_outage(self) -> str:
        """Return why nodes, pods or the policy cannot be watched; "" if they are, and without an API server."""
        failure = self._find_failure()
        return failure.sentence if failure is not None else ""

    def is_refused(self) -> bool:
        """True if `away` reports an API server that answers, but does not accept or permit the requests."""
        failure = self._find_failure()
        return isinstance(failure, errors.ApiError) and failure.status in _REFUSED

    def _find_failure(self) -> errors.ClusterError | None:
        for name in _NEEDED:
            source = self._reflectors.get(name)
            if source is not None and source.failure is not None:
                return source.failure
        return None

    def list_unread(self) -> Sequence[str]:
        """Return what has not been read yet and is still being read, in words for people."""
        if self._snapshot is not None:
            return () if self._snapshot.synced.is_set() else ("the snapshot file",)
        unread = [
            reflector
            for reflector in self._reflectors.values()
            if not reflector.synced.is_set() and reflector.failure is None
        ]
        return tuple(dict.fromkeys(reflector.kind.words for reflector in unread))

    def list_missing(self) -> Sequence[str]:
        """Return a sentence for each failure of kinds without which the overview is incomplete, and its cause."""
        failures: dict[str, list[str]] = {}
        for name, reflector in self._reflectors.items():
            if reflector.failure is not None and name not in _NEEDED:
                failures.setdefault(reflector.failure.sentence, []).append(reflector.kind.words)
        return tuple(f"not shown: {', '.join(dict.fromkeys(words))}: {cause}" for cause, words in failures.items())

    def list_late(self, stale_after: float) -> Sequence[str]:
        """Return a sentence for each watch that was silent for longer than `stale_after` seconds."""
        ages = {
            reflector.kind.words: reflector.get_age_seconds()
            for reflector in self._reflectors.values()
            if reflector.synced.is_set()
        }
        return tuple(f"no news of {words} for {age:.0f} s" for words, age in ages.items() if age > stale_after)

    def read_metrics(self) -> dict[str, Any]:
        """Return the values of metrics, by their parameters in `railwright.serving.metrics`."""
        current = self.store.current
        return {
            "policy_valid": self.store.valid,
            "policy_generation": self.store.generation,
            "policy_digest": current.digest if current else None,
            "snapshot_generation": self._snapshot.generation if self._snapshot else None,
            "caches": [
                (name, reflector.get_age_seconds(), reflector.objects) for name, reflector in self._reflectors.items()
            ],
        }

    def watch(self, spec: WatchSpec, restarted: Restarted, skipped: Skipped = lambda _: None) -> None:
        """Feed a sink from the API server."""
        assert self.client is not None  # noqa: S101 - only called with a client
        kind = spec.kind
        source = reflectors.Reflector(
            self.client,
            kind,
            spec.sink,
            restarted=restarted,
            skipped=skipped,
            excerpt=spec.excerpt,
            gradual=spec.gradual,
        )
        self._reflectors[kind.name] = source
        self._missing[kind.name] = lambda: not source.synced.is_set()
        self.tasks.append(source.run)

    def read(self, path: pathlib.Path, sinks_by_kind: Mapping[str, sinks.Sink[Any]]) -> None:
        """Feed sinks from a snapshot file."""
        source = files.SnapshotFile(path, sinks_by_kind)
        self._snapshot = source
        self._missing["snapshot"] = lambda: not source.synced.is_set()
        self.tasks.append(source.run)


async def connect(  # noqa: PLR0913 - the inputs of a server, by name
    *,
    kubeconfig: str | None,
    snapshot: pathlib.Path | None,
    policy: pathlib.Path | None,
    watches: Sequence[WatchSpec],
    restarted: Restarted,
    skipped: Skipped = lambda _: None,
    client: clients.Client | None = None,
) -> Sources:
    """Return the sources for these options. Nothing runs until the caller runs `tasks`. Raises ClusterError.

    `client` is used in place of a new one for `kubeconfig`.
    """
    offline = snapshot is not None
    if client is None and not offline:
        client = await clients.connect(kubeconfig)
    sources = Sources(policies.PolicyStore(), client)
    if policy is not None:
        sources.tasks.append(files.PolicyFile(policy, sources.store).run)
    elif client is not None:
        holders = sources.policy_objects
        sources.watch(WatchSpec(resources.POLICY, holders.config_map), restarted, skipped)
        sources.watch(WatchSpec(resources.FABRIC_POLICIES, holders.resource), restarted, skipped)
    if snapshot is not None:
        sources.read(snapshot, {watch.kind.snapshot_kind: watch.sink for watch in watches})
    else:
        for watch in watches:
            sources.watch(watch, restarted, skipped)
    return sources
