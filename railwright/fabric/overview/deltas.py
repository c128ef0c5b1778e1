"""Computes what changed since a reader's last request: the overview as sections, each with its version.

Owns versions and JSON. A reader at version N needs the sections newer than N and the names of sections removed since.
A reader from before a restart of the server (another epoch), or with a version too old, needs all sections.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from railwright.fabric.overview import overview_types

_MAX_REMOVED = 4096  # names of removed sections that are remembered

_encode = msgspec.json.Encoder().encode


class Delta(msgspec.Struct, frozen=True):
    """The changes for one reader; `sections` and `removed` are JSON."""

    version: int
    full: bool  # True: `sections` replaces everything that the reader has
    sections: Mapping[str, bytes]
    removed: tuple[str, ...]

    @property
    def body(self) -> bytes:
        """Return the delta as a JSON object on one line."""
        parts = [_encode(key) + b":" + value for key, value in self.sections.items()]
        head = b'{"version":%d,"full":%s,"removed":%s,"sections":{' % (
            self.version,
            b"true" if self.full else b"false",
            _encode(self.removed),
        )
        return head + b",".join(parts) + b"}}"


class Deltas:
    """The sections of an overview over time."""

    def __init__(self) -> None:
        self.version = 0
        self._oldest = 0  # readers with an older version need all sections
        self._sections: dict[str, tuple[int, Any, bytes]] = {}  # version, value, JSON
        self._removed: OrderedDict[str, int] = OrderedDict()

    def update(self, overview: overview_types.Overview) -> bool:
        """Store an overview; return True if it differs from the last one."""
        version = self.version + 1
        sections = dict(_list_sections(overview))
        changed = False
        for key, value in sections.items():
            old = self._sections.get(key)
            if old is not None and (old[1] is value or old[1] == value):
                continue
            self._sections[key] = (version, value, _encode(value))
            self._removed.pop(key, None)
            changed = True
        for key in [key for key in self._sections if key not in sections]:
            del self._sections[key]
            self._removed[key] = version
            changed = True
        while len(self._removed) > _MAX_REMOVED:
            self._oldest = self._removed.popitem(last=False)[1]
        self.version += changed
        return changed

    def compute_delta(self, version: int | None) -> Delta:
        """Return the changes since a version; all sections if it is None, too old, or from another epoch."""
        if version is None or not self._oldest <= version <= self.version:
            sections = {key: section[2] for key, section in self._sections.items()}
            return Delta(version=self.version, full=True, removed=(), sections=sections)
        return Delta(
            version=self.version,
            full=False,
            sections={key: section[2] for key, section in self._sections.items() if section[0] > version},
            removed=tuple(key for key, removed_at in self._removed.items() if removed_at > version),
        )


def _list_sections(overview: overview_types.Overview) -> Iterator[tuple[str, Any]]:
    yield "site", overview.site
    for fabric in overview.fabrics:
        yield f"fabric/{fabric.name}", fabric
    for key, leaf in overview.leaves.items():
        yield f"leaf/{key}", leaf
    for gang in overview.gangs:
        yield f"gang/{gang.key}", gang
    yield "admissions", overview.admissions
    yield "events", overview.events
