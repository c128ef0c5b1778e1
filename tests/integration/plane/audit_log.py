"""Reads the API server's audit log while the API server writes it."""

import datetime as dt
import json
import pathlib
from typing import Any


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """Return the events, without the last one if its line is not complete yet."""
    with path.open("rb") as log:
        return [json.loads(line) for line in log if line.endswith(b"\n")]


def format_now() -> str:
    """Return the current time in the audit log's format."""
    return f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
