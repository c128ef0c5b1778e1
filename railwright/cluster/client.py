"""The API server over HTTP: raw JSON in and out, every call with a deadline; and pauses between attempts.

Authentication and configuration come from `railwright.cluster.credentials`. The session uses no proxy from the
environment (an injected HTTPS_PROXY would reroute cluster traffic), follows no redirects, accepts lines of any
length, and decodes no models.
"""

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping

import aiohttp
import msgspec

from railwright.cluster import credentials, errors, failures

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 30.0
LONGEST_ASKED_SECONDS = 300.0  # upper bound on Retry-After
_MOST_DOUBLINGS = 16  # more has no effect under the limit and would overflow eventually
CALL_SECONDS = 30.0  # for a list page or a write
CONNECT_SECONDS = 10.0
_CHUNK = 64 * 1024
_LONGEST_MESSAGE = 500  # characters that an error quotes of a response that is not a Status
_LONGEST_STATUS = 8192  # characters of a Status: a rejection by a webhook may name many fields
_WARNING = re.compile(r'\b\d{3} \S+ "(?P<text>(?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


class _Details(msgspec.Struct, rename="camel"):
    """The field `details` of a Status."""

    retry_after_seconds: float = 0.0


class Status(msgspec.Struct):
    """The answer of an API server to a request that fails, which is also the object of an ERROR event."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


decode_status = msgspec.json.Decoder(Status).decode


class Client:
    """One session with one API server."""

    def __init__(self, account: credentials.Account, *, call_seconds: float | None = None) -> None:
        self._account = account
        self._call_seconds = CALL_SECONDS if call_seconds is None else call_seconds
        self._mistrusted = False  # the API server's certificate is not signed by the CA we loaded
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False)

    @property
    def host(self) -> str:
        """Address of the API server, for messages."""
        return self._account.host

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """Return the body of a GET. Raises ApiError, UnreachableError and ConfigurationError, as all calls do."""
        return await self._call("GET", path, query=query)

    async def post(self, path: str, body: bytes) -> bytes:
        """Return the body of a POST."""
        return await self._call("POST", path, body=body)

    async def create(self, path: str, body: bytes) -> tuple[bytes, tuple[str, ...]]:
        """Return the body of a POST, and the warnings that the API server sends with it."""
        timeout = aiohttp.ClientTimeout(total=self._call_seconds, sock_connect=CONNECT_SECONDS)
        async with self._answer("POST", path, body=body, timeout=timeout) as response:
            with self._unreachable(path):
                return await response.read(), _parse_warnings(response.headers.getall("Warning", ()))

    async def put(self, path: str, body: bytes) -> bytes:
        """Return the body of a PUT."""
        return await self._call("PUT", path, body=body)

    async def patch(self, path: str, body: bytes, content_type: str) -> bytes:
        """Return the body of a PATCH."""
        return await self._call("PATCH", path, body=body, content_type=content_type)

    async def delete(self, path: str, body: bytes) -> bytes:
        """Return the body of a DELETE. `body` are DeleteOptions."""
        return await self._call("DELETE", path, body=body)

    async def stream(
        self, path: str, query: Mapping[str, str], quiet_seconds: float, *, opened: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[bytes, None]:
        """Yield complete lines of a watch, of any length, until the stream ends. An incomplete last line is dropped.

        `opened` is called when the server has accepted the watch; the first line may follow a minute later. Raises
        SilentError if nothing arrives for `quiet_seconds` after that.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=quiet_seconds)
        async with self._answer("GET", path, query=query, timeout=timeout) as response:
            opened()
            parts: list[bytes] = []
            with self._unreachable(path), self._silent(path):
                async for chunk in response.content.iter_chunked(_CHUNK):
                    *lines, rest = chunk.split(b"\n")
                    for line in lines:
                        yield b"".join([*parts, line])
                        parts.clear()
                    if rest:
                        parts.append(rest)

    async def renew(self) -> None:
        """Reload the credentials, because the server rejects the current ones. Raises ConfigurationError."""
        self._account = await self._account.renew()

    async def close(self) -> None:
        """Close the session."""
        await self._session.close()

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=self._call_seconds, sock_connect=CONNECT_SECONDS)
        async with self._answer(
            method, path, query=query, body=body, content_type=content_type, timeout=timeout
        ) as response:
            with self._unreachable(path):
                return await response.read()

    @contextlib.asynccontextmanager
    async def _answer(  # noqa: PLR0913 - the parts of a request, by name
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - enforced by the session, phase by phase
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._mistrusted:  # the server may have a new CA, and our CA file may contain it by now
            self._mistrusted = False
            await self.renew()
        account = self._account
        headers = {"Accept": "application/json", "User-Agent": "railwright", **await account.headers()}
        if body is not None:
            headers["Content-Type"] = content_type
        with self._unreachable(path), self._record_mistrust():
            response = await self._session.request(
                method,
                account.host + path,
                params=query,
                data=body,
                headers=[*headers.items(), *account.impersonation.list_headers()],
                timeout=timeout,
                ssl=account.tls,
                server_hostname=account.server_name,
                proxy=account.proxy,
                # the API server sends no redirects; any other server must not get our credentials
                allow_redirects=False,
            )
        try:
            if response.status >= 300:
                with self._unreachable(path):
                    raise _build_api_error(response, await response.read(), path, account)
            yield response
        finally:
            response.release()

    @contextlib.contextmanager
    def _unreachable(self, path: str) -> Iterator[None]:
        """Convert every connection failure to UnreachableError."""
        try:
            yield
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise failures.build_unreachable(self.host, path, error) from error

    @contextlib.contextmanager
    def _silent(self, path: str) -> Iterator[None]:
        """Convert a read timeout of a stream to SilentError."""
        try:
            yield
        except aiohttp.ServerTimeoutError as error:
            raise failures.build_silent(self.host, path) from error

    @contextlib.contextmanager
    def _record_mistrust(self) -> Iterator[None]:
        try:
            yield
        except aiohttp.ClientConnectorCertificateError:
            self._mistrusted = True
            raise


class Backoff:
    """The pauses of one task, until `reset`."""

    def __init__(self, longest_seconds: float, chance: random.Random) -> None:
        self._longest, self._chance = longest_seconds, chance
        self._pauses = 0

    def reset(self) -> None:
        """Begin with the shortest pause again."""
        self._pauses = 0

    async def pause(self, retry_after: float = 0.0) -> None:
        """Sleep exponentially longer with full jitter, up to a limit, and in addition to Retry-After (seconds)."""
        longest = min(self._longest, FIRST_PAUSE_SECONDS * 2**self._pauses)
        self._pauses = min(self._pauses + 1, _MOST_DOUBLINGS)
        await asyncio.sleep(min(retry_after, LONGEST_ASKED_SECONDS) + self._chance.uniform(0, longest))


async def connect(
    kubeconfig: str | None,
    *,
    context: str | None = None,
    call_seconds: float | None = None,
    impersonation: credentials.Impersonation = credentials.NOBODY_ELSE,
) -> Client:
    """Return a client for the cluster of a kubeconfig, or of the pod this runs in. Raises ConfigurationError.

    `call_seconds` limits each request: None for CALL_SECONDS, 0 for no limit.
    """
    return Client(await credentials.read(kubeconfig, context, impersonation), call_seconds=call_seconds)


def _parse_warnings(headers: Iterable[str]) -> tuple[str, ...]:
    """Return the texts of Warning headers: 299 - "TEXT", with quotes and backslashes escaped (RFC 7234, 5.5)."""
    texts = (match["text"] for header in headers for match in _WARNING.finditer(header))
    return tuple(_ESCAPED.sub(r"\1", text) for text in texts)


def _build_api_error(
    response: aiohttp.ClientResponse, body: bytes, path: str, account: credentials.Account
) -> errors.ApiError:
    foreign = False
    try:
        status = decode_status(body)
        reason, message = status.reason, status.message
        foreign = status.kind != "Status"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # a proxy's page, or an empty body
        reason, message = response.reason or "", body[:_LONGEST_MESSAGE].decode(errors="replace")
        foreign = True
    after = response.headers.get("Retry-After", "")
    return failures.build_api_error(
        errors.ErrorResponse(
            response.status,
            reason,
            message[:_LONGEST_STATUS],
            path,
            retry_after=float(after) if after.isascii() and after.isdigit() else 0.0,
            where=failures.format_place(account.host),
            foreign=foreign,
            method=response.method,
            is_anonymous=account.is_anonymous,
        )
    )
