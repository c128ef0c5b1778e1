"""The interface of tracing, and disabled tracing, which returns functions unchanged so that it costs nothing.

OpenTelemetry is imported only if `--otlp-endpoint` is given (spans.py).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, Protocol, TypeVar

from railwright.serving import routes, settings

P = ParamSpec("P")
R = TypeVar("R")

Attributes = Mapping[str, str | int | bool]
NAMESPACE, POD = "k8s.namespace.name", "k8s.pod.name"  # OpenTelemetry's semantic conventions
FABRIC, DECISION, REASON = "railwright.fabric", "railwright.decision", "railwright.reason"
EXTRA = "railwright[tracing]"


class MissingError(Exception):
    """Tracing is enabled but not installed; the message names the package."""


class Tracing(Protocol):
    """Wraps functions in spans. The span of a request is the parent of the spans created while it is answered."""

    def routes(self, offered: Sequence[routes.Route]) -> Sequence[routes.Route]:
        """Return the routes with a span around each request, continuing the client's trace (W3C traceparent)."""

    def step(self, name: str, call: Callable[P, R], about: Callable[[R], Attributes] | None = None) -> Callable[P, R]:
        """Return the function with a span around it. `about` maps its result to attributes of the request's span."""

    def noted(self, call: Callable[P, R], about: Callable[[R], Attributes]) -> Callable[P, R]:
        """Return the function without a span of its own.

        `about` maps its result to attributes of the request's span.
        """

    async def close(self) -> None:
        """Send remaining spans within a few seconds."""


class Off:
    """Disabled tracing."""

    def routes(self, offered: Sequence[routes.Route]) -> Sequence[routes.Route]:
        """Return the routes unchanged."""
        return offered

    def step(self, name: str, call: Callable[P, R], about: Callable[[R], Attributes] | None = None) -> Callable[P, R]:
        """Return the function unchanged."""
        del name, about
        return call

    def noted(self, call: Callable[P, R], about: Callable[[R], Attributes]) -> Callable[P, R]:
        """Return the function unchanged."""
        del about
        return call

    async def close(self) -> None:
        """Do nothing."""


OFF = Off()


def chosen(options: settings.Settings) -> Tracing:
    """Return the tracing that the options select. Must be called after any fork. Raises MissingError."""
    if options.otlp_endpoint is None:
        return OFF
    try:
        from railwright.serving import spans  # noqa: PLC0415 - an extra: 60 modules, loaded on demand only
    except ModuleNotFoundError as error:
        raise MissingError(
            f"--otlp-endpoint requires the extra `tracing`, but {error.name} is not installed: pip install '{EXTRA}'"
        ) from None
    return spans.Spans(options.otlp_endpoint, service=f"railwright-{options.server}")
