"""The API server over HTTP: raw JSON in and out, every call with a deadline.

Authentication and configuration come from kubernetes_asyncio (kubeconfig, in-cluster account and its token refresh);
the session is our own: no proxy from the environment (an injected HTTPS_PROXY would reroute cluster traffic), lines of
any length, and no model decoding.
"""

import contextlib
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping

import aiohttp
from kubernetes_asyncio import config
from kubernetes_asyncio.client import configuration

from cluster import errors

CALL_SECONDS = 30.0  # for a list page or a write
CONNECT_SECONDS = 10.0
_CHUNK = 64 * 1024
_LONGEST_MESSAGE = 500  # characters of a server's words that go into an error


class Client:
    """One session with one API server."""

    def __init__(self, settings: configuration.Configuration) -> None:
        self._settings = settings
        self._host = (settings.host or "").rstrip("/")
        connector = aiohttp.TCPConnector(ssl=_tls(settings), limit=0)
        self._session = aiohttp.ClientSession(connector=connector, trust_env=False, auto_decompress=True)

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """The body of a GET. Raises ApiError and UnreachableError, as all calls do."""
        return await self._call("GET", path, query=query)

    async def post(self, path: str, body: bytes) -> bytes:
        """The body of a POST."""
        return await self._call("POST", path, body=body)

    async def patch(self, path: str, body: bytes, content_type: str) -> bytes:
        """The body of a PATCH."""
        return await self._call("PATCH", path, body=body, content_type=content_type)

    async def stream(self, path: str, query: Mapping[str, str], quiet_seconds: float) -> AsyncGenerator[bytes, None]:
        """Whole lines of a watch, of any length; ends with the stream. A line cut off at the end is not given.

        Raises UnreachableError when nothing arrives for `quiet_seconds`.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=quiet_seconds)
        async with self._answer("GET", path, query=query, timeout=timeout) as response:
            parts: list[bytes] = []
            with _unreachable(path):
                async for chunk in response.content.iter_chunked(_CHUNK):
                    *lines, rest = chunk.split(b"\n")
                    for line in lines:
                        yield b"".join([*parts, line])
                        parts.clear()
                    if rest:
                        parts.append(rest)

    async def close(self) -> None:
        """End the session."""
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
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS, sock_connect=CONNECT_SECONDS)
        async with self._answer(
            method, path, query=query, body=body, content_type=content_type, timeout=timeout
        ) as response:
            with _unreachable(path):
                return await response.read()

    @contextlib.asynccontextmanager
    async def _answer(  # noqa: PLR0913 - what a request consists of, by name
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the session enforces it, phase by phase
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Accept": "application/json", "User-Agent": "railwright", **await self._authorization()}
        if body is not None:
            headers["Content-Type"] = content_type
        with _unreachable(path):
            response = await self._session.request(
                method, self._host + path, params=query, data=body, headers=headers, timeout=timeout
            )
        try:
            if response.status >= 400:
                with _unreachable(path):
                    raise _api_error(response, await response.read(), path)
            yield response
        finally:
            response.release()

    async def _authorization(self) -> dict[str, str]:
        """The header of the account, read anew for every call: tokens are rotated under us."""
        headers = {}
        for each in (await self._settings.auth_settings()).values():  # calls the refresh hook
            if each["in"] == "header" and each["value"]:
                headers[each["key"]] = each["value"]
        return headers


async def connect(kubeconfig: str | None) -> Client:
    """A client for the cluster of a kubeconfig, or of the pod this runs in. Raises ConfigurationError."""
    settings = configuration.Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]  # theirs
        else:
            await config.load_kube_config(config_file=kubeconfig, client_configuration=settings)
    except (config.ConfigException, OSError, ValueError, KeyError) as error:
        source = (
            f"kubeconfig {kubeconfig}" if kubeconfig else "in-cluster account (give --kubeconfig outside a cluster)"
        )
        raise errors.ConfigurationError(f"{source}: {error}") from error
    return Client(settings)


def _tls(settings: configuration.Configuration) -> ssl.SSLContext | bool:
    if not (settings.host or "").startswith("https"):
        return False
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, keyfile=settings.key_file)
    if not settings.verify_ssl:  # the kubeconfig says insecure-skip-tls-verify
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@contextlib.contextmanager
def _unreachable(path: str) -> Iterator[None]:
    """Every way a connection can fail, as one error."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise errors.UnreachableError(f"{path}: {type(error).__name__}: {error}") from error


def _api_error(response: aiohttp.ClientResponse, body: bytes, path: str) -> errors.ApiError:
    try:
        status = json.loads(body)
        reason, message = str(status.get("reason", "")), str(status.get("message", ""))
    except (ValueError, AttributeError):
        reason, message = response.reason or "", body[:_LONGEST_MESSAGE].decode(errors="replace")
    after = response.headers.get("Retry-After", "")
    return errors.ApiError(
        response.status,
        reason,
        message[:_LONGEST_MESSAGE],
        path,
        retry_after=float(after) if after.isascii() and after.isdigit() else 0.0,
    )
