"""Liveness and readiness: named checks, and the application for probes and metrics.

A check is a function without parameters. It returns None (or "") if it passes, otherwise the reason as a sentence. It
must not wait.
"""

import logging
from collections.abc import Callable, Mapping

import msgspec
from aiohttp import web
from prometheus_client import exposition

from railwright.fabric import text
from railwright.serving import application

_LOG = logging.getLogger(__name__)
_MAX_REASON = 300  # characters; kubelet puts the whole response into an Event at each probe

Check = Callable[[], str | None]


class Probes:
    """The readiness checks of this process, which is not ready while `draining`."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}
        self._failing: Mapping[str, str] | None = None  # at the last run
        self.was_ready = False
        self.draining = False

    def add_check(self, name: str, check: Check) -> None:
        """Add a check that must pass for the server to be ready."""
        self._checks[name] = check

    def run_checks(self) -> Mapping[str, str]:
        """Return why each check fails, by its name; "" if it passes. Logs when other checks fail than before."""
        reasons = {name: text.limit_message(check() or "", _MAX_REASON) for name, check in self._checks.items()}
        if self.draining:
            reasons["draining"] = "this server is shutting down"
        failing = {name: reason for name, reason in reasons.items() if reason}
        if self._failing is None or failing.keys() != self._failing.keys():
            _LOG.info("not ready" if failing else "ready", extra={"fields": {"failing": failing}})
        self._failing = failing
        self.was_ready = self.was_ready or not failing
        return reasons

    def build_application(self, format_metrics: Callable[[], bytes]) -> web.Application:
        """Return the application of --ops-listen."""

        async def send_live(_request: web.Request) -> web.Response:
            """Handle GET /livez. Any response shows that the event loop runs."""
            return application.build_response(b'{"live":true}')

        async def send_ready(_request: web.Request) -> web.Response:
            """Handle GET /readyz: 200 if every check passes, otherwise 503; the body has each check and its reason."""
            reasons = self.run_checks()
            ready = not any(reasons.values())
            checks = {name: reason or "ok" for name, reason in reasons.items()}
            body = msgspec.json.encode({"ready": ready, "checks": checks})
            return application.build_response(body, status=200 if ready else 503)

        async def send_metrics(_request: web.Request) -> web.Response:
            return application.build_response(format_metrics(), content_type=exposition.CONTENT_TYPE_LATEST)

        handlers = {"/livez": send_live, "/readyz": send_ready, "/metrics": send_metrics}
        # no HEAD, for which everything would be computed
        routes = [web.get(path, handler, allow_head=False) for path, handler in handlers.items()]
        return application.build_application(application.Rules(max_body=0), routes)
