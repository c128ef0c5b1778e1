"""Selects the tracing of a process: disabled, or OpenTelemetry's if `--otlp-endpoint` is given."""

from railwright.serving import settings, tracing

EXTRA = "railwright[tracing]"


class MissingError(Exception):
    """Tracing is enabled but not installed; the message names the package."""


def select(options: settings.Settings) -> tracing.Tracing:
    """Return the tracing that the options select. Raises MissingError."""
    if options.otlp_endpoint is None:
        return tracing.OFF
    try:
        from railwright.serving import spans  # noqa: PLC0415 - an extra: 60 modules, loaded on demand only
    except ImportError as error:
        raise MissingError(
            f"--otlp-endpoint requires the extra `tracing`, but {error.name} is not installed: pip install '{EXTRA}'"
        ) from None
    return spans.Spans(options.otlp_endpoint, service=f"railwright-{options.server}")
