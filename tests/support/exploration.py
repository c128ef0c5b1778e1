"""Chooses how many cases a test tries: few by default, many in `make test-slow PARTS=examples`.

A test that calls `choose` needs the mark `examples`, unless it uses hypothesis.
"""

import os

import hypothesis


def choose(usual: int, many: int) -> int:
    """Return `many` with the hypothesis profile `explore`, otherwise `usual`."""
    return many if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else usual


wide = hypothesis.settings(max_examples=choose(100, 400))  # where the default of 25 examples finds little
