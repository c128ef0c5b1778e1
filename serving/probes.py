"""Readiness from named checks; liveness from the loop itself.

A check is a function that returns "" while all is well and else the sentence that says what is not. A policy that
turned bad later is none of them: the last good one serves, and one bad ConfigMap must not take every replica out.
"""

from collections.abc import Callable

import msgspec

Check = Callable[[], str]


class Probes:
    """The checks of one server."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}
        self.draining = False

    def add(self, name: str, check: Check) -> None:
        """Add a check by its name, which /readyz shows."""
        self._checks[name] = check

    def readiness(self) -> tuple[bool, bytes]:
        """(ready, body): every check with "ok" or what is wrong."""
        results = {name: check() or "ok" for name, check in self._checks.items()}
        if self.draining:
            results["draining"] = "the server is stopping"
        ready = all(result == "ok" for result in results.values())
        return ready, msgspec.json.encode({"ready": ready, "checks": results})
