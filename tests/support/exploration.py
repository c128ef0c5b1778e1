"""How much a test explores that is no property test: little as a rule, much in `make test-slow PARTS=examples`."""

import os


def choose(usual: int, many: int) -> int:
    """Return `many` where property tests try many examples, and `usual` otherwise."""
    return many if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else usual
