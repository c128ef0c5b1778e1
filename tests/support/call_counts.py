"""Counts the calls of a computation: a bound of its loops that no busy machine moves, as seconds are."""

import sys
from collections.abc import Callable
from typing import Any


def count(function: Callable[[], Any]) -> int:
    """Return how many functions, of Python and of its libraries in C, are called while the function runs."""
    calls = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return calls
