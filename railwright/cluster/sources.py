"""Sources of a server's data: watches of the API server, or files in its place, behind one interface.

Also reports to readiness and metrics whether everything was read, and how old it is. An invalid file leaves the last
valid content in force. `snapshots` and `policies` parse the content.
"""

import asyncio
import errno
import functools
import logging
import os
import pathlib
import stat
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import installed_names, policies, resources, sinks, snapshots
from railwright.cluster import reflector as reflectors
from railwright.fabric import names, text, views
from railwright.fabric.policy import model


class PolicyConfigMap:
    """A sink that passes the policy's ConfigMap to the store, and ignores other ConfigMaps."""

    def __init__(self, store: policies.PolicyStore) -> None:
        self.current: views.ConfigMap | None = None
        self._store = store

    def replace(self, objects: Sequence[views.ConfigMap]) -> None:
        """Apply the full list, with or without the policy's ConfigMap."""
        self._apply(next((obj for obj in objects if obj.metadata.name == installed_names.POLICY), None))

    def upsert(self, obj: views.ConfigMap) -> None:
        """Apply a new or changed object."""
        if obj.metadata.name == installed_names.POLICY:
            self._apply(obj)

    def remove(self, obj: views.ConfigMap) -> None:
        """Record the deletion of the object."""
        if obj.metadata.name == installed_names.POLICY:
            self._apply(None)

    def _apply(self, obj: views.ConfigMap | None) -> None:
        """Read the object. Without the key it counts as an empty policy, which is rejected."""
        self.current = obj
        if obj is None:
            self._store.withdraw()
        else:
            self._store.take(policies.read((obj.data or {}).get(names.POLICY_KEY, "")))


# --- files in place of the API server --------------------------------------------------------------------------

_LOG = logging.getLogger(__name__)
_INTERVAL = 0.25  # seconds between polls: two polls and a read fit into the second that docs/interface.md 2.1 allows


class WatchedFile:
    """Calls `apply` with the text of a file whenever the file changes.

    `apply` returns the problem of the text, or None. After a problem the last valid content stays. `report_loss` gets
    the reason whenever the file becomes unreadable.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        apply: Callable[[str], str | None],
        report_loss: Callable[[str], None] = lambda _reason: None,
        interval: float = _INTERVAL,
    ) -> None:
        self.path = pathlib.Path(path)
        self.synced = asyncio.Event()
        self._apply, self._report_loss, self._interval = apply, report_loss, interval
        self._stamp: tuple[int, ...] = ()  # renames, swaps of symbolic links and writes change it
        self._last_problem = ""

    async def run(self) -> None:
        """Poll for changes until cancelled."""
        while True:
            self._poll()
            await asyncio.sleep(self._interval)

    def _poll(self) -> None:
        try:
            text = self._read_if_changed()
            problem = self._apply(text) if text is not None else self._last_problem
        except (OSError, UnicodeDecodeError) as error:
            problem = "is not UTF-8 text"
            if isinstance(error, OSError):
                self._stamp, problem = (), f"cannot be read: {error.strerror or type(error).__name__}"
            if problem != self._last_problem:
                self._report_loss(problem)
        if problem and problem != self._last_problem:  # one line for each state of the file, not for each poll
            consequence = "the last valid content stays" if self.synced.is_set() else "nothing valid loaded yet"
            _LOG.warning("%s: %s; %s", self.path, problem, consequence)
        self._last_problem = problem or ""
        if not problem:
            self.synced.set()

    def _read_if_changed(self) -> str | None:
        status = self.path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")  # a pipe would block forever
        stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        return self.path.read_bytes().decode()


def watch_policy(
    path: str | os.PathLike[str], store: policies.PolicyStore, *, interval: float = _INTERVAL
) -> WatchedFile:
    """Return the source of `--policy FILE`: a policy or its ConfigMap, passed to the store whenever it changes."""

    def apply(content: str) -> str | None:
        result = policies.read_manifest(content)
        store.take(result)
        if not isinstance(result, policies.Rejected):
            return None
        more = len(result.errors) - 1
        return f"{result.errors[0]}" + (f" (and {text.format_count(more, 'more error')})" if more else "")

    def report_loss(reason: str) -> None:
        store.take(policies.Rejected((policies.PolicyError("", None, reason),)))

    return WatchedFile(path, apply, report_loss, interval)


def watch_snapshot(
    path: str | os.PathLike[str],
    sinks: Mapping[str, sinks.Sink[Any]],
    counts: dict[str, int],
    *,
    interval: float = _INTERVAL,
) -> WatchedFile:
    """Return the source of `--snapshot FILE`: replaces the content of every sink, by kind, whenever the file changes.

    `counts` gets the number of objects of each kind.
    """

    def apply(content: str) -> str | None:
        try:
            result = snapshots.read(content)
        except snapshots.SnapshotError as error:
            return str(error)
        for kind, sink in sinks.items():
            sink.replace(result[kind])
        counts.update((kind, len(objects)) for kind, objects in result.items())
        return None

    return WatchedFile(path, apply, interval=interval)


# --- sources ------------------------------------------------------------------------------------------------

Task = Callable[[], Coroutine[Any, Any, None]]
CountFailure = Callable[[str, str], None]
"""Called with (kind, reason) when a watch starts again, and with "skipped" for an object that cannot be decoded."""
# kinds without which no decision is possible
_NEEDED = (resources.NODES.name, resources.WAITING_PODS.name, resources.POLICY.name)
_SILENT_SECONDS = 150.0  # an idle watch gets a bookmark each minute; more than two are missing


def return_whole(obj: Any) -> Any:
    """Return the object unchanged, as the excerpt for a sink that needs all of it."""
    return obj


class WatchSpec(msgspec.Struct, frozen=True):
    """One kind to feed into a sink: watched, or read from a snapshot.

    `excerpt` returns the part of an object that the sink needs; the rest is freed before the next object is decoded.
    `gradual`: the sink accepts a part of the first list. `is_needed` is True for a policy that needs the kind. It is
    watched only under such a policy; None: always. `grant` names the setting that grants the right to watch the kind,
    if not every installation has it; the server is ready without it.
    """

    kind: resources.Kind
    sink: sinks.Sink[Any]
    excerpt: Callable[[Any], Any] = return_whole
    gradual: bool = False
    is_needed: Callable[[model.PolicyDocument], bool] | None = None
    grant: str = ""


class Sources:
    """The running sources of one server."""

    def __init__(self, store: policies.PolicyStore, client: clients.Client | None) -> None:
        self.store = store
        self.client = client  # None if files replace the cluster
        self.policy_object = PolicyConfigMap(store)
        self.tasks: list[Task] = []
        self._specs: list[WatchSpec] = []  # of all kinds that are watched, also of those that no policy needs now
        self._reflectors: dict[str, reflectors.Reflector] = {}
        self._snapshot: WatchedFile | None = None
        self._counts: dict[str, int] = {}  # objects of the snapshot by kind

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
        unread = [
            spec.kind.name for spec in self._list_unread_specs() if not (spec.grant and self.is_denied(spec.kind))
        ]
        if self._snapshot is not None and not self._snapshot.synced.is_set():
            unread.append("snapshot")
        if unread:
            return f"not read yet: {', '.join(unread)}"
        if stale_after is None:
            return ""
        late = self._list_late(stale_after)
        return f"no contact for too long: {', '.join(late)}" if late else ""

    def _list_unread_specs(self) -> Iterator[WatchSpec]:
        for spec in self._specs:
            source = self._reflectors.get(spec.kind.name)
            if self._needs(spec) and (source is None or not source.synced.is_set()):
                yield spec

    def is_denied(self, kind: resources.Kind) -> bool:
        """True if the policy in force needs a kind that this account was denied and has not read since."""
        return kind.name in self._reflectors and self._reflectors[kind.name].is_denied

    def _list_late(self, stale_after: float) -> list[str]:
        ages = {name: source.get_age_seconds() for name, source in self._reflectors.items()}
        return [f"{name} {age:.0f} s" for name, age in ages.items() if age > stale_after]

    def find_outage(self) -> str:
        """Return why nodes, pods or the policy cannot be watched; "" if they can, or without an API server."""
        for name in _NEEDED:
            source = self._reflectors.get(name)
            if source is not None and source.failure is not None:
                return source.failure.sentence
        return ""

    def list_unread(self) -> Sequence[str]:
        """Return the names of the kinds that are still being read."""
        if self._snapshot is not None:
            return () if self._snapshot.synced.is_set() else ("the snapshot file",)
        failing = {name for name, source in self._reflectors.items() if source.failure is not None}
        return tuple(
            dict.fromkeys(spec.kind.words for spec in self._list_unread_specs() if spec.kind.name not in failing)
        )

    def list_problems(self) -> Sequence[str]:
        """Return the problems of the data as sentences. An outage is returned alone, because it causes the others."""
        if outage := self.find_outage():
            return (outage,)
        failures: dict[str, list[str]] = {}
        for source in self._reflectors.values():
            if source.failure is not None:
                failures.setdefault(source.failure.sentence, []).append(source.kind.words)
        missing = [f"not shown: {', '.join(dict.fromkeys(words))}: {cause}" for cause, words in failures.items()]
        if unread := self.list_unread():  # the policy may be among them
            return (f"Not read yet: {', '.join(unread)}.", *missing)
        late = self._list_late(_SILENT_SECONDS)
        return tuple(
            filter(None, (self.find_policy_problem(), *missing, f"No contact for: {', '.join(late)}." if late else ""))
        )

    def read_metrics(self) -> dict[str, Any]:
        """Return the values of metrics, by their parameters in `railwright.serving.metrics`."""
        current = self.store.current
        return {
            "policy_valid": self.store.valid,
            "policy_digest": current.digest if current else "",
            "caches": [
                (name, reflector.get_age_seconds(), reflector.objects) for name, reflector in self._reflectors.items()
            ]
            if self._snapshot is None
            else [(kind, 0.0, count) for kind, count in self._counts.items()],
        }

    def watch(self, spec: WatchSpec, count_failure: CountFailure) -> None:
        """Feed a sink from the API server."""
        self._specs.append(spec)
        self.tasks.append(functools.partial(self._watch, spec, count_failure))

    async def _watch(self, spec: WatchSpec, count_failure: CountFailure) -> None:
        """Watch a kind while the policy in force needs it. Afterwards its objects are removed."""
        assert self.client is not None  # noqa: S101 - only called with a client
        changed = asyncio.Event()
        self.store.subscribe(lambda _: changed.set())

        async def wait_until(*, is_needed: bool) -> None:
            while self._needs(spec) is not is_needed:
                changed.clear()
                await changed.wait()

        while True:
            await wait_until(is_needed=True)
            source = self._reflectors[spec.kind.name] = reflectors.Reflector(
                self.client,
                spec.kind,
                spec.sink,
                count_failure=count_failure,
                excerpt=spec.excerpt,
                gradual=spec.gradual,
                grant=spec.grant,
            )
            async with asyncio.TaskGroup() as group:
                running = group.create_task(source.run())
                await wait_until(is_needed=False)
                running.cancel()
            del self._reflectors[spec.kind.name]
            spec.sink.replace([])

    def _needs(self, spec: WatchSpec) -> bool:
        current = self.store.current
        return spec.is_needed is None or (current is not None and spec.is_needed(current.document))

    def read(self, path: pathlib.Path, sinks_by_kind: Mapping[str, sinks.Sink[Any]]) -> None:
        """Feed sinks from a snapshot file."""
        self._snapshot = watch_snapshot(path, sinks_by_kind, self._counts)
        self.tasks.append(self._snapshot.run)


async def connect(  # noqa: PLR0913 - the inputs of a server, by name
    *,
    kubeconfig: str | None,
    snapshot: pathlib.Path | None,
    policy: pathlib.Path | None,
    watches: Sequence[WatchSpec],
    count_failure: CountFailure = lambda _kind, _reason: None,
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
        sources.tasks.append(watch_policy(policy, sources.store).run)
    elif client is not None:
        sources.watch(WatchSpec(resources.POLICY, sources.policy_object), count_failure)
    if snapshot is not None:
        sources.read(snapshot, {watch.kind.snapshot_kind: watch.sink for watch in watches})
    else:
        for watch in watches:
            sources.watch(watch, count_failure)
    return sources
