"""How much a test explores that is no property test: little as a rule, much in `make test-slow PARTS=examples`."""

import os

import hypothesis


def choose(usual: int, many: int) -> int:
    """Return `many` where property tests try many examples, and `usual` otherwise."""
    return many if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else usual


wide = hypothesis.settings(max_examples=choose(100, 1000))  # of a property whose space a few examples hardly touch
