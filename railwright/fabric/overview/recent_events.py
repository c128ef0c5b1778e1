"""Lists the newest Events of the webhook and the extender.

The API server deletes Events after an hour; rows of deleted ones stay until newer ones replace them.
"""

import re
from collections.abc import Sequence

from railwright.fabric import text, views
from railwright.fabric.overview import overview_types
from railwright.fabric.reasons.codes import AdmissionCode, Code, RejectionCode

MAX_ROWS = 200  # a list for reading, not for searching
COMPONENTS = frozenset({"railwright-webhook", "railwright-extender"})  # sources of the Events that are read
_MAX_MESSAGE = 500  # characters
_CODES = frozenset(code.value for code in (*Code, *AdmissionCode, *RejectionCode))
_RULE = re.compile(r"N\d\d", re.ASCII)  # code of a lint rule


class RecentEvents:
    """The newest Events by object, at most MAX_ROWS. A sink: replace, upsert, remove."""

    def __init__(self) -> None:
        self.generation = 0  # increases with every change
        self._rows: dict[str, overview_types.Event] = {}

    def replace(self, objects: Sequence[views.Event]) -> None:
        """Apply the full list of Events of one component."""
        for event in objects:
            self.upsert(event)

    def upsert(self, obj: views.Event) -> None:
        """Store a new or repeated Event, unless it is another component's."""
        component = (obj.source.component if obj.source else "") or obj.reporting_component
        if component not in COMPONENTS:
            return
        row, key = _describe(obj), obj.metadata.identity
        if self._rows.get(key) == row:
            return
        self._rows[key] = row
        self.generation += 1
        if len(self._rows) >= 2 * MAX_ROWS:
            newest = sorted(self._rows.items(), key=lambda item: _build_sort_key(item[1]), reverse=True)
            self._rows = dict(newest[:MAX_ROWS])

    def remove(self, obj: views.Event) -> None:
        """Keep the row: the API server deletes Events after an hour."""

    def list_newest(self) -> Sequence[overview_types.Event]:
        """Return the rows, newest first."""
        return sorted(self._rows.values(), key=_build_sort_key, reverse=True)[:MAX_ROWS]


def _describe(event: views.Event) -> overview_types.Event:
    subject = event.involved_object
    code, separator, rest = event.message.partition(": ")
    has_code = bool(separator) and (code in _CODES or _RULE.fullmatch(code) is not None)
    return overview_types.Event(
        at=event.last_timestamp or event.event_time or event.metadata.creation_timestamp or "",
        object=f"{subject.namespace}/{subject.name}",
        kind=subject.kind,
        reason=event.reason,
        message=text.truncate(rest if has_code else event.message, _MAX_MESSAGE),
        is_warning=event.type == "Warning",
        code=code if has_code else "",
        count=max(1, event.count or 1),
    )


def _build_sort_key(row: overview_types.Event) -> tuple[str, str]:
    return row.at, row.object
