"""The interface of tracing, and disabled tracing, which costs next to nothing.

OpenTelemetry is not imported here: spans.py implements the interface with it, and `server.select_tracing` selects.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence

from railwright.serving import routes as http

Attributes = Mapping[str, str | int | bool]
NAMESPACE, POD = "k8s.namespace.name", "k8s.pod.name"  # OpenTelemetry's semantic conventions
FABRIC, DECISION, REASON = "railwright.fabric", "railwright.decision", "railwright.reason"
_NO_SPAN = contextlib.nullcontext()


class Tracing:
    """Records spans; this class records none. The span of a request is the parent of those created to answer it."""

    def wrap_routes(self, routes: Sequence[http.Route]) -> Sequence[http.Route]:
        """Return the routes with a span around each request, continuing the client's trace (W3C traceparent)."""
        return routes

    def span(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Return a span around a block of code."""
        del name
        return _NO_SPAN

    def note(self, list_attributes: Callable[[], Attributes]) -> None:
        """Set attributes of the current span. They are computed only if it is recorded."""

    async def close(self) -> None:
        """Send remaining spans within a few seconds."""


OFF = Tracing()
