"""Tracing by OpenTelemetry's SDK: spans of requests and steps, sent in batches over OTLP/HTTP by another thread.

An unreachable collector costs a bounded queue and a log line, and never blocks the event loop. Sampling, queue size
and headers are set by the SDK's own variables (OTEL_TRACES_SAMPLER, OTEL_BSP_MAX_QUEUE_SIZE,
OTEL_EXPORTER_OTLP_HEADERS, ...).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence

import requests
from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk import resources
from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.trace import export
from opentelemetry.trace.propagation import tracecontext

from railwright.fabric import version
from railwright.serving import routes as http
from railwright.serving import tracing

_LOG = logging.getLogger(__name__)
_SEND_SECONDS = 3.0  # for one batch, including retries
_CLOSE_SECONDS = 4.0  # at shutdown: the batch in transit, and one more
_PROPAGATOR = tracecontext.TraceContextTextMapPropagator()


class Spans(tracing.Tracing):
    """Enabled tracing. One instance per process."""

    def __init__(self, endpoint: str, *, service: str) -> None:
        # it logs a line per batch; `_Sender` logs a failure once
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._sender = _Sender(endpoint)
        attributes = {resources.SERVICE_NAME: service, resources.SERVICE_VERSION: version.VERSION}
        self._provider = sdk.TracerProvider(resource=resources.Resource.create(attributes), shutdown_on_exit=False)
        self._provider.add_span_processor(export.BatchSpanProcessor(self._sender))
        self._tracer = self._provider.get_tracer("railwright", version.VERSION)

    def wrap_routes(self, routes: Sequence[http.Route]) -> Sequence[http.Route]:
        """See tracing.Tracing."""
        return [route._replace(handle=self._wrap_handler(route)) for route in routes]

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """See tracing.Tracing."""
        with self._activate(self._tracer.start_span(name)) as span:
            yield
            span.end()

    def note(self, list_attributes: Callable[[], tracing.Attributes]) -> None:
        """See tracing.Tracing."""
        if (span := trace.get_current_span()).is_recording():
            span.set_attributes(list_attributes())

    async def close(self) -> None:
        """See tracing.Tracing."""
        self._sender.closing = True
        shutdown = asyncio.get_running_loop().run_in_executor(None, self._provider.shutdown)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.shield(shutdown)

    def _wrap_handler(self, route: http.Route) -> http.Handle:
        name = f"{route.method} {route.path}"
        attributes = {"http.request.method": route.method, "http.route": route.path}

        def handle(call: http.Call) -> http.Reply | Awaitable[http.Reply]:
            parent = _PROPAGATOR.extract(call.headers)
            span = self._tracer.start_span(name, context=parent, kind=trace.SpanKind.SERVER, attributes=attributes)
            with self._activate(span):
                reply = route.handle(call)
            if isinstance(reply, http.Reply):
                return _end_span(span, reply)
            return self._await_reply(span, reply)

        return handle

    async def _await_reply(self, span: trace.Span, reply: Awaitable[http.Reply]) -> http.Reply:
        with self._activate(span):
            result = await reply
        return _end_span(span, result)

    @contextlib.contextmanager
    def _activate(self, span: trace.Span) -> Iterator[trace.Span]:
        """Make the span current; an exception ends it.

        Only the exception's type is recorded, as its text may be user input.
        """
        token = context.attach(trace.set_span_in_context(span))
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(trace.StatusCode.ERROR)
            span.end()
            raise
        finally:
            context.detach(token)


def _end_span(span: trace.Span, reply: http.Reply) -> http.Reply:
    span.set_attribute("http.response.status_code", reply.status)
    if reply.outcome:
        span.set_attribute("railwright.outcome", reply.outcome)
    if reply.status >= 500:
        span.set_status(trace.StatusCode.ERROR)
    span.end()
    return reply


class _Sender(export.SpanExporter):
    """OTLP over HTTP. Logs once that the collector is unreachable, and once that it is reachable again.

    If `closing` is True and the last batch failed, no further batch is sent.
    """

    def __init__(self, endpoint: str) -> None:
        session = requests.Session()
        session.trust_env = False  # a proxy from the environment would receive every trace
        self._endpoint = endpoint
        self._exporter = trace_exporter.OTLPSpanExporter(endpoint=endpoint, timeout=_SEND_SECONDS, session=session)
        self._works = True
        self.closing = False

    def export(self, spans: Sequence[sdk.ReadableSpan]) -> export.SpanExportResult:
        """Send a batch, in the batch processor's thread."""
        if self.closing and not self._works:
            return export.SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        works = result is export.SpanExportResult.SUCCESS
        if works != self._works:
            self._log_change(works)
        self._works = works
        return result

    def shutdown(self) -> None:
        """Abort a batch in transit."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # untyped library

    def _log_change(self, works: bool) -> None:  # noqa: FBT001 - the state to log
        fields = {"endpoint": self._endpoint}
        if works:
            _LOG.info("traces are exported again", extra={"fields": fields})
        else:
            fix = "check the collector and the NetworkPolicy; surplus spans are dropped, responses are not delayed"
            _LOG.warning("traces cannot be exported", extra={"fields": {**fields, "fix": fix}})
