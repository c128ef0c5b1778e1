"""The interface of tracing, and disabled tracing, which returns functions unchanged so that it costs nothing.

OpenTelemetry is not imported here: spans.py implements the interface with it, and tracers.py selects between the two.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, Protocol, TypeVar

from railwright.serving import routes as http

P = ParamSpec("P")
R = TypeVar("R")

Attributes = Mapping[str, str | int | bool]
NAMESPACE, POD = "k8s.namespace.name", "k8s.pod.name"  # OpenTelemetry's semantic conventions
FABRIC, DECISION, REASON = "railwright.fabric", "railwright.decision", "railwright.reason"


class Tracing(Protocol):
    """Wraps functions in spans. The span of a request is the parent of the spans created while it is answered."""

    def wrap_routes(self, routes: Sequence[http.Route]) -> Sequence[http.Route]:
        """Return the routes with a span around each request, continuing the client's trace (W3C traceparent)."""

    def wrap_step(
        self, name: str, function: Callable[P, R], list_attributes: Callable[[R], Attributes] | None = None
    ) -> Callable[P, R]:
        """Return the function with a span around it.

        `list_attributes` maps its result to attributes of the request's span.
        """

    def annotate(self, function: Callable[P, R], list_attributes: Callable[[R], Attributes]) -> Callable[P, R]:
        """Return the function without a span of its own.

        `list_attributes` maps its result to attributes of the request's span.
        """

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

    def wrap_step(
        self, name: str, function: Callable[P, R], list_attributes: Callable[[R], Attributes] | None = None
    ) -> Callable[P, R]:
        """Return the function unchanged."""
        del name, list_attributes
        return function

    def annotate(self, function: Callable[P, R], list_attributes: Callable[[R], Attributes]) -> Callable[P, R]:
        """Return the function unchanged."""
        del list_attributes
        return function

    def span(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Return an empty context."""
        del name
        return _NO_SPAN

    def note(self, list_attributes: Callable[[], Attributes]) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


OFF = Off()
