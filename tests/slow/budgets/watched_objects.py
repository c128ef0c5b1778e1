"""Sends objects through a server's watch as the API server does, to measure what they cost the server."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import cost_budget
import msgspec
import pytest

from railwright.cluster import reflector, sinks, watch_wire


@pytest.fixture(autouse=True)
def _no_log() -> Iterator[None]:
    """Disable logging, because pytest stores all log lines, which would count as memory of the server."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def is_stored(row: cost_budget.Row) -> bool:
    """False for an object with incomplete owner references, which API servers reject.

    https://github.com/kubernetes/apimachinery/blob/v0.34.1/pkg/api/validation/objectmeta.go#L69
    """
    return not row.title.startswith("metadata.ownerReferences: entries of depth -1")


async def add_object(spec: reflector.WatchSpec, body: bytes) -> reflector.Reflector:
    """Add an object by a watch event, then send it again as changed. Return the reflector.

    The object is decoded once, so that only one version counts.
    """
    added: list[Any] = []
    record = sinks.CallbackSink[Any](added.extend, added.append, lambda _: None)
    source = reflector.Reflector(None, msgspec.structs.replace(spec, sink=sinks.combine(spec.sink, record)))  # type: ignore[arg-type]  # asks nothing
    with contextlib.suppress(*watch_wire.UNREADABLE):  # its metadata is not that of an object
        await source._apply_event(b'{"type":"ADDED","object":' + body + b"}")
    await asyncio.sleep(0)
    for known in added:
        spec.sink.upsert(known)
    return source


def remove_objects(source: reflector.Reflector) -> None:
    """Remove all objects of a watch."""
    for identity in list(source._known.values()):
        source._remove(identity)
