"""The interface of tracing, and disabled tracing, which costs next to nothing.

OpenTelemetry is not imported here: spans.py implements the interface with it, and tracers.py selects between the two.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from railwright.serving import routes as http

Attributes = Mapping[str, str | int | bool]
NAMESPACE, POD = "k8s.namespace.name", "k8s.pod.name"  # OpenTelemetry's semantic conventions
FABRIC, DECISION, REASON = "railwright.fabric", "railwright.decision", "railwright.reason"


class Tracing(Protocol):
    """Records spans. The span of a request is the parent of the spans created while it is answered."""

    def wrap_routes(self, routes: Sequence[http.Route]) -> Sequence[http.Route]:
        """Return the routes with a span around each request, continuing the client's trace (W3C traceparent)."""

    def span(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Return a span around a block of code."""

    def note(self, list_attributes: Callable[[], Attributes]) -> None:
        """Set attributes of the current span. They are computed only if it is recorded."""

    async def close(self) -> None:
        """Send remaining spans within a few seconds."""


_NO_SPAN = contextlib.nullcontext()


class Off:
    """Disabled tracing."""

    def wrap_routes(self, routes: Sequence[http.Route]) -> Sequence[http.Route]:
        """Return the routes unchanged."""
        return routes

    def span(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Return an empty context."""
        del name
        return _NO_SPAN

    def note(self, list_attributes: Callable[[], Attributes]) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


OFF = Off()
