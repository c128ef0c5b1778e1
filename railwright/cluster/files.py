"""Files in place of a cluster: a snapshot of objects and a policy, reloaded when they change.

Changes are found by polling (stat and content hash, so that renames, symlink swaps and coarse timestamps are
noticed). An invalid file leaves the last valid content in force. `snapshots` and `manifests` parse the content.
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
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from railwright.cluster import manifests, policies, sinks, snapshots
from railwright.fabric import text
from railwright.fabric.policy import model

_LOG = logging.getLogger(__name__)
_INTERVAL = 0.25  # seconds between polls: two polls and a parse fit into the second that docs/interface.md 2.1 allows
_SETTLE_POLLS = 8  # polls that hash the content after a change: 2 s, the coarsest file timestamp (FAT)
_PARSING = threading.Lock()  # msgspec crashes if two threads inspect one type for the first time
_MISSING_POLLS = 4  # polls before a missing file counts as deleted; rm + mv leaves a gap

Parsed = TypeVar("Parsed")


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
    """`--policy FILE`: a policy, its ConfigMap or its FabricPolicy, passed to the store whenever it changes."""

    def __init__(
        self, path: str | os.PathLike[str], store: policies.PolicyStore, *, interval: float = _INTERVAL
    ) -> None:
        def apply(result: model.Policy | policies.Rejected) -> str | None:
            store.take(result)
            return _summarize(result) if isinstance(result, policies.Rejected) else None

        def report_loss(reason: str) -> None:
            store.take(policies.Rejected((policies.PolicyError("", None, reason),)))

        super().__init__(path, parse=manifests.read, apply=apply, report_loss=report_loss, interval=interval)


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
