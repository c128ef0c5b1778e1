"""Counts the calls that a computation makes. Unlike CPU time, their number does not depend on the machine's load."""

import sys
from collections.abc import Callable
from typing import Any


def count(function: Callable[[], Any]) -> int:
    """Return the number of calls while `function` runs, of functions in Python and in C."""
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
