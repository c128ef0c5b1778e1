"""Sources of a server's data: watches of the API server, or files in its place, behind one interface.

Also reports to readiness and metrics which data is missing or old. Files are read once.
"""

import asyncio
import functools
import math
import pathlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from railwright.cluster import client as clients
from railwright.cluster import documents, errors, last_policy, policies, resources, sinks, snapshots
from railwright.cluster import reflector as reflectors

Task = Callable[[], Coroutine[Any, Any, None]]
# kinds without which no decision is possible
_NEEDED = (resources.NODES.name, resources.WAITING_PODS.name, resources.POLICY.name)


class Sources:
    """The running sources of one server: its watches, or the files in their place."""

    def __init__(self, store: policies.PolicyStore, client: clients.Client | None) -> None:
        self.store = store
        self.client = client  # None if files replace the cluster
        self.tasks: list[Task] = []
        self._specs: list[reflectors.WatchSpec] = []  # also of kinds that no policy needs now
        self._reflectors: dict[str, reflectors.Reflector] = {}

    def find_policy_problem(self) -> str:
        """Return why the server is not ready for lack of a policy; "" once any policy has been in force."""
        if self.store.current is not None:
            return ""
        wrong = "; ".join(map(str, self.store.errors[:3]))
        return f"no valid policy yet{': ' + wrong if wrong else ''}"

    def find_cache_problem(self, stale_after: float = math.inf) -> str:
        """Return why the server is not ready for lack of cluster data, otherwise "".

        A watch without contact with the API server for `stale_after` seconds is a problem.
        """
        optional = {spec.kind.name for spec in self._specs if spec.grant and self.is_denied(spec.kind)}
        if unread := [name for name in self._list_unread_kinds() if name not in optional]:
            return f"not read yet: {', '.join(unread)}"
        ages = {name: source.get_age_seconds() for name, source in self._reflectors.items()}
        late = [f"{name} {age:.0f} s" for name, age in ages.items() if age > stale_after]
        return f"no contact with the API server for too long: {', '.join(late)}" if late else ""

    def _list_unread_kinds(self) -> list[str]:
        """Return the names of the kinds that the policy needs and whose first list is not complete."""
        needed = (
            (spec.kind.name, self._reflectors.get(spec.kind.name)) for spec in self._specs if self._is_needed(spec)
        )
        return [name for name, source in needed if source is None or not source.synced.is_set()]

    def is_denied(self, kind: resources.Kind) -> bool:
        """True if the kind is watched, and the API server denies the right since the last success."""
        return kind.name in self._reflectors and self._reflectors[kind.name].is_denied

    def find_outage(self) -> str:
        """Return why nodes, pods or the policy cannot be watched; "" if they can, or if files replace the cluster."""
        for name in _NEEDED:
            source = self._reflectors.get(name)
            if source is not None and source.failure is not None:
                return source.failure.sentence
        return ""

    def list_problems(self) -> Sequence[str]:
        """Return as sentences which data is missing, and why. An outage is returned alone: it causes the others."""
        if outage := self.find_outage():
            return (outage,)
        failures: dict[str, list[str]] = {}
        for name, source in self._reflectors.items():
            if source.failure is not None:
                failures.setdefault(source.failure.sentence, []).append(name)
        missing = [f"not shown: {', '.join(kinds)}: {cause}" for cause, kinds in failures.items()]
        unread = [name for name in self._list_unread_kinds() if not any(name in kinds for kinds in failures.values())]
        if unread:  # the policy may be among them
            return (f"Not read yet: {', '.join(unread)}.", *missing)
        return tuple(filter(None, (self.find_policy_problem(), *missing)))

    def read_metrics(self) -> dict[str, Any]:
        """Return the arguments of `set_source_gauges` in `railwright.serving.metrics`, by name."""
        current = self.store.current
        return {
            "policy_valid": self.store.valid,
            "policy_digest": current.digest if current else "",
            "caches": [
                (name, reflector.get_age_seconds(), reflector.object_count)
                for name, reflector in self._reflectors.items()
            ],
        }

    def add_watch(self, spec: reflectors.WatchSpec, count_failure: reflectors.CountFailure) -> None:
        """Add a task that keeps a sink equal to one kind of the API server."""
        self._specs.append(spec)
        self.tasks.append(functools.partial(self._watch, spec, count_failure))

    async def _watch(self, spec: reflectors.WatchSpec, count_failure: reflectors.CountFailure) -> None:
        """Watch a kind while the policy in force needs the kind; then remove its objects from the sink."""
        assert self.client is not None  # noqa: S101 - only called with a client
        if spec.kind is resources.POLICY:  # read first, because it replaces a policy that is invalid
            self.store.last_valid = await last_policy.wait_for_copy(self.client)
        changed = asyncio.Event()
        self.store.subscribe(lambda _: changed.set())

        async def wait_until(*, is_needed: bool) -> None:
            while self._is_needed(spec) is not is_needed:
                changed.clear()
                await changed.wait()

        while True:
            await wait_until(is_needed=True)
            source = reflectors.Reflector(self.client, spec, count_failure)
            self._reflectors[spec.kind.name] = source
            async with asyncio.TaskGroup() as group:
                running = group.create_task(source.run())
                await wait_until(is_needed=False)
                running.cancel()
            del self._reflectors[spec.kind.name]
            spec.sink.replace([])

    def _is_needed(self, spec: reflectors.WatchSpec) -> bool:
        current = self.store.current
        return spec.is_needed is None or (current is not None and spec.is_needed(current.document))


async def connect(  # noqa: PLR0913 - the inputs of a server, by name
    *,
    kubeconfig: str | None,
    snapshot: pathlib.Path | None,
    policy: pathlib.Path | None,
    watches: Sequence[reflectors.WatchSpec],
    count_failure: reflectors.CountFailure = lambda _kind, _reason: None,
    client: clients.Client | None = None,
) -> Sources:
    """Return the sources for these options, with all files read. Watches begin when the caller runs `tasks`.

    `client` is used in place of a new one for `kubeconfig`. Raises ClusterError, and ConfigurationError for a file.
    """
    store = policies.PolicyStore()
    if policy is not None:
        _load_policy(policy, store)
    if snapshot is not None:
        _read_snapshot(snapshot, {watch.kind.snapshot_kind: watch.sink for watch in watches})
        return Sources(store, None)
    sources = Sources(store, client or await clients.connect(kubeconfig))
    if policy is None:
        sources.add_watch(reflectors.WatchSpec(resources.POLICY, store), count_failure)
    for watch in watches:
        sources.add_watch(watch, count_failure)
    return sources


def _load_policy(path: pathlib.Path, store: policies.PolicyStore) -> None:
    """Read a policy file, the plain document or a ConfigMap with it, and put it in force. Raises ConfigurationError."""
    result = policies.read_manifest(_read_text(path))
    if isinstance(result, policies.RejectedPolicy):
        listed = "\n  ".join(error.format_with_file(str(path)) for error in result.errors)
        raise errors.ConfigurationError(f"the policy is invalid: {listed}")
    store.update_policy(result)


def _read_snapshot(path: pathlib.Path, sinks: Mapping[str, sinks.Sink[Any]]) -> None:
    """Put the objects of a snapshot into the sinks, which are given by kind. Raises ConfigurationError."""
    try:
        objects = snapshots.read(_read_text(path))
    except documents.DocumentError as error:
        raise errors.ConfigurationError(f"--snapshot {path}: {error}") from None
    for kind, sink in sinks.items():
        sink.replace(objects[kind])


def _read_text(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise errors.ConfigurationError(f"{path} cannot be read: {reason}") from None
