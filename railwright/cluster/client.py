"""A client of the API server over kubernetes_asyncio: raw JSON in and out, a deadline for each call.

The library authenticates, encodes and connects. Bodies are passed on undecoded, because each kind has its own view and
the library's models would take many times the memory.
"""

import asyncio
import contextlib
import pathlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec

from railwright.cluster import errors, kubeconfigs

USER_AGENT = "railwright"  # also the name of the field manager of writes that give none
CALL_SECONDS = 30.0  # for a list page or a write
CONNECT_SECONDS = 10.0
_LINE = 1 << 24  # bytes that are buffered of a line of a watch; twice as many end it. An object has a few MiB at most
_LONGEST_MESSAGE = 500  # characters that an error quotes of a response that is not a Status
_LONGEST_STATUS = 8192  # characters of a Status: a rejection by a webhook may name many fields
_CHANNELS = "v4.channel.k8s.io"  # protocol of `exec`: the first byte of a message is its channel
_OUTPUT, _OUTCOME = b"\x01", b"\x03"  # the output of the program, and a Status when it ends
_WARNING = re.compile(r'\b\d{3} \S+ "(?P<text>(?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


class Status(msgspec.Struct):
    """The API server's answer to a failed request, and the object of an ERROR event."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""


decode_status = msgspec.json.Decoder(Status).decode


class Client:
    """Sends requests to one API server. `connect` builds it."""

    def __init__(
        self,
        kubeconfig: str | None,
        context: str | None,
        user: str,
        groups: Sequence[str],
        call_seconds: float,
    ) -> None:
        self._selection = (kubeconfig, context, user, groups)
        self._call_seconds = call_seconds
        self._api: Any = None  # kubernetes_asyncio.client.ApiClient
        self._basis: list[object] = []  # of its connections
        self._connections = contextlib.AsyncExitStack()  # one more after each change of the certificates
        self._access: kubeconfigs.Access
        self._opening = asyncio.Lock()
        # True at first, and after an answer that new credentials or a new CA may change: the next request reads both
        self._is_doubted = True

    async def load_access(self) -> kubeconfigs.Access:
        """Return the address and credentials; read again after a 401 or an untrusted certificate.

        Raises ConfigurationError.
        """
        async with self._opening:
            if self._is_doubted:
                access = await kubeconfigs.load(*self._selection)
                try:
                    self._connect(access)
                except OSError as error:  # of OpenSSL
                    reason = "its CA or client certificate cannot be used: PEM is expected"
                    raise kubeconfigs.build_error(self._selection[0], reason) from error
                self._access, self._is_doubted = access, False
            return self._access

    def _connect(self, access: kubeconfigs.Access) -> None:
        """Use these credentials for the next requests, on new connections if certificates or the proxy have changed.

        Open connections keep their certificates, and a watch on one goes on until its stream ends.
        """
        from kubernetes_asyncio.client import ApiClient  # noqa: PLC0415 - takes 0.3 s, and many commands need no cluster

        given, basis = access.configuration, _read_connection_inputs(access)
        if basis == self._basis:
            self._api.configuration = given
            return
        given.connection_pool_maxsize = 0  # no limit: each watch keeps a connection
        # The CAs of many clusters lack the key identifiers that Python requires since 3.13 (EKS, for one). Issuer, host
        # name, dates and usage are checked all the same.
        given.disable_strict_ssl_verification = True
        api = ApiClient(given)
        # The library's session takes proxies from the environment, where an injected HTTPS_PROXY would reroute the
        # cluster's traffic, and its headers do not repeat, as those of groups do.
        connector = api.rest_client.pool_manager.connector
        api.rest_client.pool_manager.detach()
        api.rest_client.pool_manager = aiohttp.ClientSession(
            connector=connector, headers=access.impersonation, read_bufsize=_LINE
        )
        api.user_agent = USER_AGENT
        self._connections.push_async_callback(api.close)
        self._api, self._basis = api, basis

    @property
    def host(self) -> str:
        """Address of the API server, for messages."""
        return str(self._access.configuration.host)

    async def get_token(self) -> str:
        """Return the bearer token of the account, "" without one."""
        value = str(await (await self.load_access()).configuration.get_api_key_with_prefix("BearerToken"))
        return value.removeprefix("Bearer ") if value.startswith("Bearer ") else ""

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return the body of the response to a GET.

        Raises ApiError, UnreachableError and ConfigurationError, as all calls do.
        """
        return (await self._send_request("GET", path, query=query, headers=headers))[0]

    async def post(self, path: str, body: object) -> bytes:
        """POST an object, which is a tree of JSON or a Struct. Return the body of the response."""
        return (await self._send_request("POST", path, body=body))[0]

    async def post_with_warnings(self, path: str, body: object) -> tuple[bytes, tuple[str, ...]]:
        """POST an object. Return the body of the response, and the warnings in its headers."""
        return await self._send_request("POST", path, body=body)

    async def put(self, path: str, body: object) -> bytes:
        """PUT an object. Return the body of the response."""
        return (await self._send_request("PUT", path, body=body))[0]

    async def patch(self, path: str, body: object, content_type: str) -> bytes:
        """Send a PATCH of this content type. Return the body of the response."""
        return (await self._send_request("PATCH", path, body=body, headers={"Content-Type": content_type}))[0]

    async def delete(self, path: str, body: object) -> bytes:
        """DELETE an object, with `body` as DeleteOptions. Return the body of the response."""
        return (await self._send_request("DELETE", path, body=body))[0]

    async def stream_lines(
        self, path: str, query: Mapping[str, str], quiet_seconds: float, *, opened: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[bytes, None]:
        """Yield complete lines of a watch until the stream ends. An incomplete last line is dropped.

        `opened` is called when the server has accepted the watch; the first line may follow a minute later. Raises
        UnreachableError if nothing arrives for `quiet_seconds` after that.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=quiet_seconds)
        async with self._open_response("GET", path, query=query, timeout=timeout) as response:
            opened()
            with self._convert_errors(path):
                async for line in response.content:
                    if line.endswith(b"\n"):
                        yield line

    async def execute_command(self, path: str, container: str, command: Sequence[str]) -> str:
        """Run a command in a container, and return its output. `path` is the subresource `exec` of the pod.

        Raises as `get` does; ApiError with status 0 if the program is missing in the container, or fails.
        """
        configuration = (await self.load_access()).configuration
        login = await configuration.get_api_key_with_prefix("BearerToken")
        headers = {"User-Agent": USER_AGENT} | ({"Authorization": login} if login else {})
        query = [("container", container), ("stdout", "true"), ("stderr", "true")]
        rest = self._api.rest_client
        output, failure = [], ""
        with self._convert_errors(path):
            try:
                async with (
                    asyncio.timeout(self._call_seconds or None),
                    rest.pool_manager.ws_connect(
                        f"{self.host}{path}",
                        params=[*query, *(("command", word) for word in command)],
                        headers=headers,
                        protocols=(_CHANNELS,),
                        proxy=rest.proxy,
                        server_hostname=rest.server_hostname,
                    ) as socket,
                ):
                    async for message in socket:
                        channel, text = message.data[:1], message.data[1:]
                        if channel == _OUTPUT:
                            output.append(text)
                        elif channel == _OUTCOME:
                            status = decode_status(text)
                            failure = status.message if status.reason or status.code else ""
            except aiohttp.WSServerHandshakeError as error:  # the answer's body is lost
                message = "the command was not run"
                raise errors.ApiError(error.status, "", message, path) from error
        if failure:
            raise errors.ApiError(0, "", failure[:_LONGEST_MESSAGE], path)
        return b"".join(output).decode(errors="replace")

    async def close(self) -> None:
        """Close all connections."""
        await self._connections.aclose()

    async def _send_request(self, method: str, path: str, **parts: Any) -> tuple[bytes, tuple[str, ...]]:
        """Send a request with these query, body and headers. Return the body and the warnings of the response."""
        timeout = aiohttp.ClientTimeout(total=self._call_seconds, sock_connect=CONNECT_SECONDS)
        async with self._open_response(method, path, timeout=timeout, **parts) as response:
            with self._convert_errors(path):
                return await response.read(), _parse_warnings(response.headers.getall("Warning", ()))

    @contextlib.asynccontextmanager
    async def _open_response(  # noqa: PLR0913 - the parts of a request, by name
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - enforced by the session, phase by phase
        query: Mapping[str, str] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:

        async def send() -> aiohttp.ClientResponse:
            access = await self.load_access()
            with self._convert_errors(path):
                answer: aiohttp.ClientResponse = await self._api.call_api(
                    path,
                    method,
                    query_params=dict(query or {}),
                    header_params={"Accept": "application/json", **(headers or {})},
                    body=msgspec.to_builtins(body),
                    auth_settings=["BearerToken"],
                    _preload_content=False,  # the answer as aiohttp has it, also one with an error status
                    _request_timeout=timeout,
                )
            if answer.status == 401 and access is self._access:  # otherwise another request has read newer ones
                self._is_doubted = True
            return answer

        response = await send()
        if response.status == 401:  # a token may have expired: again, with the credentials that are there now
            response.release()
            response = await send()
        try:
            if not 200 <= response.status < 300:
                with self._convert_errors(path):
                    raise self._build_api_error(response, await response.read(), path)
            yield response
        finally:
            response.release()

    @contextlib.contextmanager
    def _convert_errors(self, path: str) -> Iterator[None]:
        """Convert connection failures to UnreachableError, and errors of the configuration to ConfigurationError."""
        try:
            yield
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise self._build_address_error() from error
        except (aiohttp.ClientError, aiohttp.http.HttpProcessingError, TimeoutError, OSError) as error:
            self._is_doubted = self._is_doubted or isinstance(error, aiohttp.ClientConnectorCertificateError)
            raise errors.build_unreachable_error(self.host, path, error) from error
        except (ValueError, TypeError) as error:  # a login in the address, an address that is no text
            raise self._build_address_error() from error

    def _build_address_error(self) -> errors.ConfigurationError:
        reason = f"`server: {errors.format_origin(self.host)}` or `proxy-url` of its cluster is no address"
        fix = "write `server: https://HOST:PORT`, without user name and password, and `proxy-url: http://HOST:PORT`"
        return kubeconfigs.build_error(self._selection[0], reason, fix)

    def _build_api_error(self, response: aiohttp.ClientResponse, body: bytes, path: str) -> errors.ApiError:
        try:
            status = decode_status(body)
            reason, message = status.reason, status.message
            is_foreign = status.kind != "Status"
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # a proxy's page, or an empty body
            reason, message = response.reason or "", body[:_LONGEST_MESSAGE].decode(errors="replace")
            is_foreign = True
        return errors.ApiError(
            response.status,
            reason,
            message[:_LONGEST_STATUS],
            path,
            method=response.method,
            where=errors.format_origin(self.host),
            foreign=is_foreign,
            body=body,
            warnings=_parse_warnings(response.headers.getall("Warning", ())),
        )


def _read_connection_inputs(access: kubeconfigs.Access) -> list[object]:
    """Return the settings and certificates that a connection uses until it is closed. Raises OSError."""
    given = access.configuration
    files = map(pathlib.Path, filter(None, (given.ssl_ca_cert, given.cert_file, given.key_file)))
    kept = given.proxy, given.tls_server_name, given.verify_ssl, access.impersonation
    return [*kept, *(file.read_bytes() for file in files)]


async def connect(
    kubeconfig: str | None,
    *,
    context: str | None = None,
    call_seconds: float = CALL_SECONDS,
    user: str = "",
    groups: Sequence[str] = (),
) -> Client:
    """Return a client for the cluster of a kubeconfig, or of this process's pod. Raises ConfigurationError.

    `call_seconds` limits each request, 0 for no limit. Requests impersonate `user` and `groups`.
    """
    client = Client(kubeconfig, context, user, groups, call_seconds)
    await client.load_access()
    return client


def _parse_warnings(headers: Iterable[str]) -> tuple[str, ...]:
    """Return the texts of Warning headers: 299 - "TEXT", with quotes and backslashes escaped (RFC 7234, 5.5)."""
    texts = (match["text"] for header in headers for match in _WARNING.finditer(header))
    return tuple(_ESCAPED.sub(r"\1", text) for text in texts)
