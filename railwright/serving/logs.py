"""Structured logs: one JSON object per line on stderr.

Callers pass values in `extra={"fields": {...}}` and never format user input into the message. Every value is escaped
and truncated, so none can forge a line or fill a disk.
"""

import datetime as dt
import json
import logging
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from railwright.fabric import text

_MAX_TEXT = 4096  # characters of the message, and of each value
_MAX_TRACE = 16384  # characters of a traceback; its end names the error, so its start is cut off
_MAX_ITEMS = 64  # entries of a list


def configure_logging(stream: TextIO | None = None) -> None:
    """Send every logger of this process to `stream` (stderr), one JSON object per line. Replaces earlier handlers."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of ASCII JSON: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line of JSON."""
        line: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": text.truncate(record.getMessage(), _MAX_TEXT),
        }
        if fields := getattr(record, "fields", None):
            line["fields"] = {name: _limit_value(value) for name, value in fields.items()}
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = self.formatException(record.exc_info)[-_MAX_TRACE:]
        # ASCII output escapes control characters, terminal sequences and lone surrogates
        return json.dumps(line, ensure_ascii=True)


def _limit_value(value: object) -> Any:
    """Return a field's value in types of JSON, with long texts and lists cut off."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _limit_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_limit_value(item) for item in list(value)[:_MAX_ITEMS]]
    return text.truncate(str(value), _MAX_TEXT)
