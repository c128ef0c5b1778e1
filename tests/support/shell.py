"""Runs a server in the test's event loop with real sockets and TLS on free ports, and stops it at the end."""

import asyncio
import contextlib
import datetime as dt
import inspect
import pathlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from aiohttp import web
from cryptography import x509

from certs import pki
from railwright.serving import application, metrics, probes, server, settings

DAY = dt.timedelta(days=1)
PATIENCE = 120  # seconds: what takes longer hangs, also on a busy machine


async def echo(request: web.Request) -> web.Response:
    return application.build_response(request[application.BODY])


ECHO = (web.post("/echo", echo), web.post("/long", echo))


def head(length: int, path: str = "/echo") -> bytes:
    """Return the head of a request whose body has this length."""
    headers = f"Content-Type: application/json\r\nContent-Length: {length}\r\n"
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode()


class Ports:
    """The ports of a server on loopback, and the callers that it has."""

    port = ops_port = 0

    def __init__(self) -> None:
        self.callers: list[Caller] = []

    async def open(self, context: ssl.SSLContext | None = None, port: int = 0) -> "Caller":
        name = "localhost" if context else None
        streams = await asyncio.open_connection("127.0.0.1", port or self.port, ssl=context, server_hostname=name)
        self.callers.append(caller := Caller(*streams))
        return caller

    async def ops(self, path: str) -> "Answer":
        caller = await self.open(port=self.ops_port)
        try:
            return await caller.ask(path=path, method="GET")
        finally:
            await caller.close()

    async def read_serial(self, context: ssl.SSLContext) -> int:
        """Return the serial number of the certificate that a new caller gets with an answer."""
        caller = await self.open(context)
        try:
            assert (await caller.ask(b"1")).status == 200
            return caller.serial
        finally:
            await caller.close()

    async def close_callers(self) -> None:
        for caller in self.callers:
            await caller.close()


class Running(Ports):
    """A server that listens; `code` is its exit code once it has ended. Its callers are closed before it is stopped."""

    def __init__(self, shell: server.Server, ended: asyncio.Task[int], ports: Mapping[str, settings.Address]) -> None:
        super().__init__()
        self.shell, self.ended = shell, ended
        self.port, self.ops_port = ports[""].port, ports["ops "].port
        self.volcano_port = ports["volcano "].port if "volcano " in ports else 0

    @property
    def connections(self) -> int:
        """Open connections of the service port."""
        return sum(connection.fileno() >= 0 for _, connection in self.rules.connections)

    @property
    def rules(self) -> application.Rules:
        """The limits of the service port, and what is in progress there."""
        return self.find_rules("")

    def find_rules(self, name: str) -> application.Rules:
        return next(port.app[application.RULES] for port in self.shell.ports if port.name == name)


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body


class Caller:
    """One connection to which a test sends raw bytes, including invalid ones."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @property
    def serial(self) -> int:
        """Return the serial number of the server's certificate."""
        presented = self.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(presented).serial_number

    async def ask(self, body: bytes = b"", *, path="/echo", method="POST", **headers: str) -> Answer:
        given = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
        await self.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode() + body)
        return await self.answer()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> Answer:
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
            return Answer(int(first.split()[1]), headers, body)

    async def is_disconnected(self) -> bool:
        """Return True if the server has closed this connection without another byte."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
            await asyncio.shield(self.writer.wait_closed())  # a cancelled wait would cancel that of others


@contextlib.asynccontextmanager
async def running(
    service: web.Application | Sequence[web.RouteDef] = ECHO,
    *arguments: str,
    checks: probes.Probes | None = None,
    counters: metrics.Metrics | None = None,
    tasks: Sequence[server.ports.Task] = (),
    name: settings.ServerName = "webhook",
    volcano: Sequence[web.RouteDef] = (),
    **rules: Any,
) -> AsyncIterator[Running]:
    """Serve an application, or routes with these rules."""
    transport = () if any(argument.startswith("--tls") for argument in arguments) else ("--plain-http",)
    places = ("--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")
    options = settings.parse(name, [*places, "--drain-seconds", "0", *transport, *arguments])
    counters = counters or metrics.Metrics(name)

    def build(routes: Sequence[web.RouteDef]) -> web.Application:
        given = {"max_body": 256 << 20, "counters": counters, **rules}
        return application.build_application(application.Rules(**given), routes)

    shell = server.Server(
        options,
        service if isinstance(service, web.Application) else build(service),
        checks or probes.Probes(),
        counters,
        volcano=build(volcano) if volcano else None,
    )
    opened: asyncio.Future[Mapping[str, settings.Address]] = asyncio.get_running_loop().create_future()
    ended = asyncio.ensure_future(shell.run(tasks, on_listening=opened.set_result))
    await asyncio.wait((opened, ended), return_when=asyncio.FIRST_COMPLETED)
    if not opened.done():
        await ended
    listening = Running(shell, ended, opened.result())
    try:
        yield listening
    finally:
        await listening.close_callers()
        shell.stop()
        async with asyncio.timeout(PATIENCE):
            await ended


class Authority:
    """A CA in a directory, and the certificates that it issues."""

    def __init__(self, directory: pathlib.Path, name: str = "test") -> None:
        self.now = dt.datetime.now(dt.UTC)
        self.pair = pki.issue_ca(name, now=self.now, lifetime=10 * DAY)
        self.path = directory / f"{name}-ca.crt"
        self.path.write_bytes(self.pair.certificate_pem)

    def leaf(self, name: str, *, usage: str = "server", lifetime: dt.timedelta = DAY) -> pki.KeyPair:
        return pki.issue_certificate(
            self.pair,
            common_name=name,
            hosts=["localhost", "127.0.0.1"],
            usages=[usage],
            now=self.now,
            lifetime=lifetime,
        )

    def write_options(self, name: str, **leaf: Any) -> tuple[str, str]:
        """Write a certificate and its key into the directory. Return the options of a server that presents it."""
        certificate, key = write_pair(self.path.parent, self.leaf(name, **leaf))
        return f"--tls-cert={certificate}", f"--tls-key={key}"

    def context(self, client: tuple[pathlib.Path, pathlib.Path] | None = None) -> ssl.SSLContext:
        """Return the TLS context of a caller that trusts this CA."""
        context = ssl.create_default_context(cafile=str(self.path))
        if client:
            context.load_cert_chain(*client)
        return context


def write_pair(directory: pathlib.Path, pair: pki.KeyPair, name: str = "tls") -> tuple[pathlib.Path, pathlib.Path]:
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    certificate.write_bytes(pair.certificate_pem)
    key.write_bytes(pair.key_pem)
    return certificate, key


def serial_of(pair: pki.KeyPair) -> int:
    return x509.load_pem_x509_certificate(pair.certificate_pem).serial_number


async def until(condition: Callable[[], Any]) -> Any:
    """Return the first true value of a condition, which may be asynchronous."""
    async with asyncio.timeout(PATIENCE):
        while True:
            value = condition()
            if inspect.isawaitable(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.01)  # how often to look
