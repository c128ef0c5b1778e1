"""What servers ask of tracing, and tracing that is off: functions handed back as they are, so that it costs nothing.

Owns the choice. OpenTelemetry is behind it in `spans`, imported only where `--otlp-endpoint` is given.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, Protocol, TypeVar

from railwright.serving import routes, settings

P = ParamSpec("P")
R = TypeVar("R")

Attributes = Mapping[str, str | int | bool]
NAMESPACE, POD = "k8s.namespace.name", "k8s.pod.name"  # of OpenTelemetry's semantic conventions
FABRIC, DECISION, REASON = "railwright.fabric", "railwright.decision", "railwright.reason"
EXTRA = "railwright[tracing]"


class MissingError(Exception):
    """Tracing is asked for and not installed; the message says how to."""


class Tracing(Protocol):
    """Puts spans around functions. A span of a request is the parent of what runs while it is answered."""

    def routes(self, offered: Sequence[routes.Route]) -> Sequence[routes.Route]:
        """The same routes, a span around each request, continuing the caller's trace (W3C traceparent)."""

    def step(self, name: str, call: Callable[P, R], about: Callable[[R], Attributes] | None = None) -> Callable[P, R]:
        """The same function with a span around it; what `about` says of its result goes to the request's span."""

    def noted(self, call: Callable[P, R], about: Callable[[R], Attributes]) -> Callable[P, R]:
        """The same function without a span of its own; what `about` says of its result goes to the request's span."""

    async def close(self) -> None:
        """Send what is left, within seconds."""


class Off:
    """No tracing."""

    def routes(self, offered: Sequence[routes.Route]) -> Sequence[routes.Route]:
        """The routes as they are."""
        return offered

    def step(self, name: str, call: Callable[P, R], about: Callable[[R], Attributes] | None = None) -> Callable[P, R]:
        """The function as it is."""
        del name, about
        return call

    def noted(self, call: Callable[P, R], about: Callable[[R], Attributes]) -> Callable[P, R]:
        """The function as it is."""
        del about
        return call

    async def close(self) -> None:
        """Nothing is left."""


OFF = Off()


def chosen(options: settings.Settings) -> Tracing:
    """Tracing as the options say; of this process, so it is called after any fork. Raises MissingError."""
    if options.otlp_endpoint is None:
        return OFF
    try:
        from railwright.serving import spans  # noqa: PLC0415 - an extra: 60 modules that nobody should load unasked
    except ModuleNotFoundError as error:
        raise MissingError(
            f"--otlp-endpoint needs the extra `tracing`, and {error.name} is not installed: pip install '{EXTRA}'"
        ) from None
    return spans.Spans(options.otlp_endpoint, service=f"railwright-{options.server}")
