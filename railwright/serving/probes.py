"""Liveness and readiness: named checks, and the responses that kubelet reads.

A check is a function without parameters. It returns None (or "") if it passes, otherwise the reason as a sentence. It
must not wait.
"""

import logging
from collections.abc import Callable, Mapping

import msgspec

from railwright.fabric import text
from railwright.serving import routes

_LOG = logging.getLogger(__name__)

Check = Callable[[], str | None]
_MAX_REASON = 300  # characters; kubelet puts the whole response into an Event at each probe


class Probes:
    """The checks of this process. `draining` makes it not ready, whatever the checks return."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}
        self._last: Mapping[str, str | None] = {}
        self._was_ready = False
        self.draining = False

    def add(self, name: str, check: Check) -> None:
        """Add a check that must pass for the server to be ready."""
        self._checks[name] = check

    def run_checks(self) -> Mapping[str, str | None]:
        """Return the reason of every check, None if it passes. A change is logged once."""
        results: dict[str, str | None] = {name: _run_check(check) for name, check in self._checks.items()}
        if self.draining:
            results["draining"] = "this server is shutting down"
        if results.keys() != self._last.keys() or any(bool(results[n]) != bool(self._last[n]) for n in results):
            failing = {name: reason for name, reason in results.items() if reason}
            _LOG.info("not ready" if failing else "ready", extra={"fields": {"failing": failing}})
        self._last = results
        self._was_ready = self._was_ready or not any(results.values())
        return results

    def was_ready(self) -> bool:
        """True if all checks have passed at some time, or pass now."""
        return self._was_ready or not self.is_failing()

    def is_failing(self) -> bool:
        """True if any check fails, or if this server is shutting down."""
        return any(self.run_checks().values())

    def handle_live(self, _call: routes.Call) -> routes.Reply:
        """Handle GET /livez. A response at all shows that the event loop runs."""
        return routes.Reply(b'{"live":true}')

    def handle_ready(self, _call: routes.Call) -> routes.Reply:
        """Handle GET /readyz: 200 if every check passes, otherwise 503; the body lists each check and its reason."""
        failures = self.run_checks()
        ready = not any(failures.values())
        checks = {name: reason or "ok" for name, reason in failures.items()}
        return routes.Reply(msgspec.json.encode({"ready": ready, "checks": checks}), status=200 if ready else 503)


def _run_check(check: Check) -> str | None:
    try:
        reason = check()
        return text.limit(reason, _MAX_REASON) if reason else reason
    except Exception:  # noqa: BLE001 - a failing check function must not break the probe
        _LOG.exception("readiness check failed")
        return "the check itself raised an error; see this server's log"
