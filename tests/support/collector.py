"""A collector of traces of the test's own: OTLP over HTTP, decoded by OpenTelemetry's own messages."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

import api_stub
import shell
from aiohttp import web
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

UNSET = 0  # STATUS_CODE_UNSET
ERROR = 2
SERVER = 2  # SPAN_KIND_SERVER


@dataclasses.dataclass(frozen=True)
class Span:
    """A received span."""

    service: str
    name: str
    trace: str
    span: str
    parent: str  # "" for a root
    kind: int
    status: int
    attributes: dict[str, object]
    began: int
    ended: int


class Collector:
    """The spans received so far. While `gate` is closed, requests are read and not answered."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.raw = b""
        self.port = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._news = asyncio.Event()

    @property
    def endpoint(self) -> str:
        """Value of --otlp-endpoint."""
        return f"http://127.0.0.1:{self.port}"

    async def trace(self, trace: str, count: int) -> dict[str, Span]:
        """Return the spans of a trace by name, once `count` have arrived."""
        async with asyncio.timeout(shell.PATIENCE):
            while len(spans := [span for span in self.spans if span.trace == trace]) < count:
                self._news.clear()
                await self._news.wait()
        assert len({span.name for span in spans}) == len(spans) == count, spans
        return {span.name: span for span in spans}

    async def take(self, request: web.Request) -> web.Response:
        """POST /v1/traces."""
        body = await request.read()
        await self.gate.wait()
        assert request.headers["Content-Type"] == "application/x-protobuf"
        self.raw += body
        message = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
        for of_resource in message.resource_spans:
            service = _attributes(of_resource.resource.attributes)["service.name"]
            for of_scope in of_resource.scope_spans:
                self.spans += [_span(str(service), span) for span in of_scope.spans]
        self._news.set()
        return web.Response(
            body=trace_service_pb2.ExportTraceServiceResponse().SerializeToString(),
            content_type="application/x-protobuf",
        )


def _span(service, span) -> Span:
    return Span(
        service=service,
        name=span.name,
        trace=span.trace_id.hex(),
        span=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=span.kind,
        status=span.status.code,
        attributes=_attributes(span.attributes),
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
    )


def _attributes(pairs) -> dict[str, object]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Collector]:
    """Yield a collector that listens."""
    made = Collector()
    async with api_stub.serve_routes(web.post("/v1/traces", made.take), max_body=1 << 26) as made.port:
        try:
            yield made
        finally:
            made.gate.set()
