"""Runs handlers that wait for nothing but their turn, without an event loop."""

from collections.abc import Coroutine
from typing import Any


def complete(running: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine."""
    try:
        while True:
            running.send(None)
    except StopIteration as end:
        return end.value
