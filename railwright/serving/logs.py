"""Structured logs: one JSON object per line on stderr.

Callers pass values in `extra={"fields": {...}}` and never format user input into the message. Every value is escaped
and truncated, so none can forge a line or fill a disk.
"""

import datetime as dt
import json
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

MESSAGE_LIMIT = 4096  # characters; longer messages are a mistake
TEXT_LIMIT = 2048  # characters of one field
TRACE_LIMIT = 16384  # characters of a traceback; its end names the error, so its start is truncated
ITEMS_LIMIT = 64  # entries of one list or mapping
DEPTH_LIMIT = 6  # levels of nesting


def configure(level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send every logger of this process to `stream` (stderr), one JSON object per line. Replaces earlier handlers."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of ASCII JSON: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. Never raises, whatever the record contains."""
        line: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _truncate(_format_message(record), MESSAGE_LIMIT),
        }
        fields = getattr(record, "fields", None)
        if fields:
            line["fields"] = _simplify(fields, 0)
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = self.formatException(record.exc_info)[-TRACE_LIMIT:]
        # ASCII output escapes control characters, terminal sequences and lone surrogates
        return json.dumps(line, ensure_ascii=True)


def _format_message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a wrong format string must not lose the line
        return str(record.msg)


def _simplify(value: object, depth: int) -> Any:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if depth < DEPTH_LIMIT and isinstance(value, Mapping):
        items = list(value.items())[:ITEMS_LIMIT]
        return {_truncate(str(key), TEXT_LIMIT): _simplify(item, depth + 1) for key, item in items}
    if depth < DEPTH_LIMIT and isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [_simplify(item, depth + 1) for item in list(value)[:ITEMS_LIMIT]]
    return _truncate(str(value), TEXT_LIMIT)


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
