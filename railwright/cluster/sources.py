"""Sources of a server's data: watches of the API server, or files in its place, behind one interface.

Also reports to readiness and metrics whether everything was read, and how old it is. Changes of files are found by
polling (stat and content hash, so that renames, symlink swaps and coarse timestamps are noticed). An invalid file
leaves the last valid content in force. `snapshots` and `policies` parse the content.

A long policy is parsed in another process: a mebibyte of garbage takes seconds, which would delay reviews.
"""

import asyncio
import dataclasses
import errno
import hashlib
import logging
import os
import pathlib
import stat
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, policies, policy_process, resources, sinks, snapshots
from railwright.cluster import reflector as reflectors
from railwright.fabric import names, text, views
from railwright.fabric.policy import model

_AT_ONCE = 16 * 1024  # characters, which take about ten milliseconds; policies are shorter
_SECONDS = 120.0  # enough for the longest text on a busy node; the last valid policy stays in force meanwhile
_POLICY_LOG = logging.getLogger("railwright.cluster")


class PolicyConfigMap:
    """A sink for the ConfigMap with the policy's name, whose text is passed to the store. Others are ignored."""

    def __init__(self, store: policies.PolicyStore) -> None:
        self.current: views.ConfigMap | None = None
        self._store = store
        self._turn = 0  # number of texts seen; a result counts only if its text is the newest
        self._reading: set[asyncio.Task[None]] = set()
        self._one = asyncio.Lock()  # one text at a time: of the waiting texts only the newest is parsed

    @property
    def name(self) -> str:
        """Kind and name of the object; "" if it does not exist."""
        return "" if self.current is None else f"ConfigMap {self.current.metadata.name}"

    @property
    def created_at(self) -> str:
        """Creation of the object, RFC 3339; "" if unknown."""
        return "" if self.current is None else self.current.metadata.creation_timestamp or ""

    def replace(self, objects: Sequence[views.ConfigMap]) -> None:
        """Apply the full list, which contains the object or not."""
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
        """Read the object. One without the key is an empty policy, which is rejected."""
        self.current = obj
        self._turn += 1
        if obj is None:
            self._store.withdraw()
            return
        text = (obj.data or {}).get(names.POLICY_KEY, "")
        if len(text) <= _AT_ONCE:
            self._store.take(policies.read(text))
            return
        reading = asyncio.get_running_loop().create_task(self._read(text, self._turn))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)

    async def _read(self, text: str, turn: int) -> None:
        async with self._one:
            if turn != self._turn:
                return
            result = await _read(text)
        if turn == self._turn:
            self._store.take(result)


async def _read(text: str) -> model.Policy | policies.Rejected:
    try:
        return await policy_process.read(text, _SECONDS)
    except policy_process.ReaderError as error:  # the policy must take effect anyway
        _POLICY_LOG.warning("policy read in this process, which slows reviews", extra={"fields": {"error": str(error)}})
        return await asyncio.to_thread(policies.read, text)


# --- sources ------------------------------------------------------------------------------------------------


_LOG = logging.getLogger(__name__)
_INTERVAL = 0.25  # seconds between polls: two polls and a parse fit into the second that docs/interface.md 2.1 allows
_SETTLE_POLLS = 8  # polls that hash the content after a change: 2 s, the coarsest file timestamp (FAT)
_PARSING = threading.Lock()  # msgspec crashes if two threads inspect one type for the first time
_MISSING_POLLS = 4  # polls before a missing file counts as deleted; rm + mv leaves a gap

Parsed = TypeVar("Parsed")

Task = Callable[[], Coroutine[Any, Any, None]]
Restarted = Callable[[str, str], None]
"""Called with (kind, reason) when a watch is restarted."""
Skipped = Callable[[str], None]
"""Called with the kind when an object cannot be decoded and is skipped."""


# kinds without which no decision is possible
_NEEDED = (resources.NODES.name, resources.PODS.name, resources.POLICY.name)
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


@dataclasses.dataclass(frozen=True)
class Lost:
    """The file cannot be read; `gone` if it does not exist."""

    reason: str
    gone: bool = False


class _File:
    """The content of a path, returned once per change. Every call may block."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._stamp: object = None
        self._digest = b""
        self._unsettled = _SETTLE_POLLS

    def read_if_changed(self) -> str | Lost | None:
        """Return the text if it has changed since the last call, otherwise None."""
        try:
            content = self._read_content()
            return None if content is None else content.decode()
        except OSError as error:
            self._stamp, self._digest = None, b""  # reappearing content counts as changed, even if it is the same
            reason = f"cannot be read: {error.strerror or type(error).__name__}"
            return Lost(reason, gone=isinstance(error, FileNotFoundError))
        except UnicodeDecodeError:
            return Lost("is not UTF-8 text")

    def _read_content(self) -> bytes | None:
        status = self.path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")  # a pipe would block forever
        stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        self._unsettled = _SETTLE_POLLS if stamp != self._stamp else self._unsettled - 1
        if self._unsettled <= 0:
            return None
        content = self.path.read_bytes()
        self._stamp = stamp
        digest = hashlib.sha256(content).digest()
        if digest == self._digest:
            return None
        self._digest = digest
        return content


class Watched(Generic[Parsed]):
    """A file that is parsed in a thread whenever its content changes, and then applied on the event loop.

    `apply` returns the problem of the parsed content, or None. `report_loss` gets the reason whenever the file becomes
    unreadable. The last valid content stays in force.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        parse: Callable[[str], Parsed],
        apply: Callable[[Parsed], str | None],
        report_loss: Callable[[str], None] = lambda _reason: None,
        interval: float = _INTERVAL,
    ) -> None:
        self.path = pathlib.Path(path)
        self.generation = 0
        self.synced = asyncio.Event()
        self._file, self._parse, self._apply, self._report_loss = _File(self.path), parse, apply, report_loss
        self._interval = interval
        self._missing = 0
        self._last_warning: str | None = None

    async def run(self) -> None:
        """Poll for changes until cancelled."""
        while True:
            result = await asyncio.to_thread(self._poll)
            if isinstance(result, Lost):
                self._handle_loss(result)
            elif result is not None:
                self._handle_content(result[0])
            await asyncio.sleep(self._interval)

    def _poll(self) -> tuple[Parsed] | Lost | None:
        text = self._file.read_if_changed()
        if not isinstance(text, str):
            return text
        with _PARSING:
            return (self._parse(text),)

    def _handle_content(self, parsed: Parsed) -> None:
        self._missing = 0
        problem = self._apply(parsed)
        if problem is not None:
            self._warn(problem)
            return
        self.generation += 1
        self._last_warning = None
        self.synced.set()

    def _handle_loss(self, lost: Lost) -> None:
        self._missing += 1
        if lost.gone and self._missing < _MISSING_POLLS and self.synced.is_set():
            return
        if lost.reason != self._last_warning:
            self._report_loss(lost.reason)
        self._warn(lost.reason)

    def _warn(self, problem: str) -> None:
        """Log one warning per state of the file instead of one per poll."""
        if problem != self._last_warning:
            self._last_warning = problem
            consequence = "the last valid content stays" if self.synced.is_set() else "nothing valid loaded yet"
            _LOG.warning("%s: %s; %s", self.path, problem, consequence)


class PolicyFile(Watched[model.Policy | policies.Rejected]):
    """`--policy FILE`: a policy or its ConfigMap, passed to the store whenever it changes."""

    def __init__(
        self, path: str | os.PathLike[str], store: policies.PolicyStore, *, interval: float = _INTERVAL
    ) -> None:
        def apply(result: model.Policy | policies.Rejected) -> str | None:
            store.take(result)
            return _summarize(result) if isinstance(result, policies.Rejected) else None

        def report_loss(reason: str) -> None:
            store.take(policies.Rejected((policies.PolicyError("", None, reason),)))

        super().__init__(path, parse=policies.read_manifest, apply=apply, report_loss=report_loss, interval=interval)


class SnapshotFile(Watched[dict[str, list[Any]] | snapshots.SnapshotError]):
    """`--snapshot FILE`: replaces the content of every sink, keyed by kind, whenever the file changes."""

    def __init__(
        self, path: str | os.PathLike[str], sinks: Mapping[str, sinks.Sink[Any]], *, interval: float = _INTERVAL
    ) -> None:
        unknown = sinks.keys() - snapshots.KINDS.keys()
        if unknown:
            raise ValueError(f"no view of {sorted(unknown)}; snapshots hold {sorted(snapshots.KINDS)}")

        def apply(result: dict[str, list[Any]] | snapshots.SnapshotError) -> str | None:
            if isinstance(result, snapshots.SnapshotError):
                return str(result)
            for kind, sink in sinks.items():
                sink.replace(result[kind])
            return None

        snapshots.prepare()
        super().__init__(path, parse=_decode_snapshot, apply=apply, interval=interval)


def _decode_snapshot(text: str) -> dict[str, list[Any]] | snapshots.SnapshotError:
    try:
        return snapshots.read(text)
    except snapshots.SnapshotError as error:
        return error


def _summarize(rejected: policies.Rejected) -> str:
    more = "" if len(rejected.errors) == 1 else f" (and {text.format_count(len(rejected.errors) - 1, 'more error')})"
    return f"{rejected.errors[0]}{more}"


class Sources:
    """The running sources of one server."""

    def __init__(self, store: policies.PolicyStore, client: clients.Client | None) -> None:
        self.store = store
        self.client = client  # None if files replace the cluster
        self.policy_object = PolicyConfigMap(store)
        self.tasks: list[Task] = []
        self._reflectors: dict[str, reflectors.Reflector] = {}
        self._snapshot: SnapshotFile | None = None
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
        return failure is not None and failure.status in _REFUSED

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
        return tuple(
            f"nothing received about {words} for {age:.0f} s" for words, age in ages.items() if age > stale_after
        )

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
        source = SnapshotFile(path, sinks_by_kind)
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
        sources.tasks.append(PolicyFile(policy, sources.store).run)
    elif client is not None:
        sources.watch(WatchSpec(resources.POLICY, sources.policy_object), restarted, skipped)
    if snapshot is not None:
        sources.read(snapshot, {watch.kind.snapshot_kind: watch.sink for watch in watches})
    else:
        for watch in watches:
            sources.watch(watch, restarted, skipped)
    return sources


# --- the APIs that are served -------------------------------------------------------------------------------


_ASKING_SECONDS, _RETRY_SECONDS, _IDLE_SECONDS = 60.0, 5.0, 0.5
_NOT_SERVED = 404


async def find_served(client: clients.Client, apis: Iterable[str]) -> frozenset[str]:
    """Return those of these APIs, each GROUP/VERSION, that are served. Raises ClusterError."""
    served = set()
    for api in apis:
        try:
            await client.get(f"/apis/{api}")
        except errors.ApiError as error:
            if error.status != _NOT_SERVED:
                raise
        else:
            served.add(api)
    return frozenset(served)


async def keep_asking(
    client: clients.Client, list_apis: Callable[[], Iterable[str]], report: Callable[[frozenset[str]], None]
) -> None:
    """Report every minute which of the listed APIs are served. An answer that fails changes nothing."""
    while True:
        pause = _IDLE_SECONDS
        if apis := tuple(list_apis()):
            try:
                report(await find_served(client, apis))
                pause = _ASKING_SECONDS
            except errors.ClusterError as error:
                _LOG.info("served APIs unknown: %s", error)
                pause = _RETRY_SECONDS
        await asyncio.sleep(pause)
