"""Liveness and readiness: named checks, and the two answers the kubelet reads.

Owns which checks there are in this process and what they last said. A check is a function of nothing that returns
None (or "") when all is well, else the reason in a sentence; it must not wait.
"""

import logging
from collections.abc import Callable, Mapping

import msgspec

from railwright.fabric.injection import model
from railwright.serving import routes

_LOG = logging.getLogger(__name__)

Check = Callable[[], str | None]
_MAX_REASON = 300  # characters; kubelet puts the whole answer into an Event each time it asks


class Probes:
    """The checks of this process. `draining` makes it not ready whatever the checks say."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}
        self._last: Mapping[str, str | None] = {}
        self._was_ready = False
        self.draining = False

    def add(self, name: str, check: Check) -> None:
        """Add a check that must hold for the server to be ready."""
        self._checks[name] = check

    def failures(self) -> Mapping[str, str | None]:
        """Every check's reason, None where it holds. A change is logged once."""
        results: dict[str, str | None] = {name: _asked(check) for name, check in self._checks.items()}
        if self.draining:
            results["draining"] = "this server is about to stop"
        if results.keys() != self._last.keys() or any(bool(results[n]) != bool(self._last[n]) for n in results):
            failing = {name: reason for name, reason in results.items() if reason}
            _LOG.info("not ready" if failing else "ready", extra={"fields": {"failing": failing}})
        self._last = results
        self._was_ready = self._was_ready or not any(results.values())
        return results

    def was_ready(self) -> bool:
        """True where every check has held at some time, or holds now."""
        return self._was_ready or not self.failing()

    def failing(self) -> bool:
        """True while any check fails, or this server is about to stop."""
        return any(self.failures().values())

    def live(self, _call: routes.Call) -> routes.Reply:
        """GET /livez: that this is answered at all shows that the event loop turns."""
        return routes.Reply(b'{"live":true}')

    def ready(self, _call: routes.Call) -> routes.Reply:
        """GET /readyz: 200 when every check holds, else 503; the body names each check and its reason."""
        return ready_reply(self.failures())


def ready_reply(failures: Mapping[str, str | None]) -> routes.Reply:
    """The answer of /readyz for these checks."""
    ready = not any(failures.values())
    checks = {name: reason or "ok" for name, reason in failures.items()}
    return routes.Reply(msgspec.json.encode({"ready": ready, "checks": checks}), status=200 if ready else 503)


def _asked(check: Check) -> str | None:
    try:
        reason = check()
        return model.bounded(reason, _MAX_REASON) if reason else reason
    except Exception:  # noqa: BLE001 - a broken check must not break the probe
        _LOG.exception("readiness check failed")
        return "the check itself failed; the log of this server says more"
