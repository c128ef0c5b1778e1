"""What changed since a reader last looked: the overview as sections, each with the version it changed at.

Owns versions and JSON. A reader that has version N needs the sections newer than N and the names of those gone since;
one from another life of the server (another epoch), or from longer ago than is remembered, needs everything.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from railwright.fabric.overview import model

_GONE = 4096  # names of sections remembered as gone

_encode = msgspec.json.Encoder().encode


class Delta(msgspec.Struct, frozen=True):
    """What one reader needs; `sections` and `gone` are JSON."""

    version: int
    whole: bool  # True: forget what there was
    sections: Mapping[str, bytes]
    gone: tuple[str, ...]

    @property
    def body(self) -> bytes:
        """All of it as one JSON object on one line."""
        parts = [_encode(key) + b":" + value for key, value in self.sections.items()]
        told = b'{"version":%d,"whole":%s,"gone":%s,"sections":{' % (
            self.version,
            b"true" if self.whole else b"false",
            _encode(self.gone),
        )
        return told + b",".join(parts) + b"}}"


class Deltas:
    """The sections of one overview over time."""

    def __init__(self) -> None:
        self.version = 0
        self._forgotten = 0  # readers older than this need everything
        self._sections: dict[str, tuple[int, Any, bytes]] = {}
        self._gone: OrderedDict[str, int] = OrderedDict()

    def show(self, overview: model.Overview) -> bool:
        """Take over an overview; True where anything differs from the last one."""
        version = self.version + 1
        fresh = dict(_sections(overview))
        changed = False
        for key, value in fresh.items():
            old = self._sections.get(key)
            if old is not None and (old[1] is value or old[1] == value):
                continue
            self._sections[key] = (version, value, _encode(value))
            self._gone.pop(key, None)
            changed = True
        for key in [key for key in self._sections if key not in fresh]:
            del self._sections[key]
            self._gone[key] = version
            changed = True
        while len(self._gone) > _GONE:
            self._forgotten = self._gone.popitem(last=False)[1]
        self.version += changed
        return changed

    def since(self, version: int | None) -> Delta:
        """What a reader with that version needs; everything where None, or where it is too old or from the future."""
        if version is None or not self._forgotten <= version <= self.version:
            return Delta(
                version=self.version, whole=True, gone=(), sections={key: row[2] for key, row in self._sections.items()}
            )
        return Delta(
            version=self.version,
            whole=False,
            sections={key: row[2] for key, row in self._sections.items() if row[0] > version},
            gone=tuple(key for key, at in self._gone.items() if at > version),
        )


def _sections(overview: model.Overview) -> Iterator[tuple[str, Any]]:
    yield "site", overview.site
    for fabric in overview.fabrics:
        yield f"fabric/{fabric.name}", fabric
    for key, leaf in overview.leaves.items():
        yield f"leaf/{key}", leaf
    for gang in overview.gangs:
        yield f"gang/{gang.key}", gang
    yield "admissions", overview.admissions
