"""The extender's explanation of a pod, fetched from wherever it can be reached.

Owns the two ways there: an address that was given, or the API server's proxy to the extender's Service, found by the
kubeconfig. Knows nothing of what is in an explanation. A token goes only where its owner said, and never unencrypted
over a network.
"""

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib import parse

import aiohttp
import msgspec

from railwright.cli import kubeconfig, output
from railwright.cluster import credentials, errors, failures, tls
from railwright.fabric import names

SECONDS = 30.0  # for one answer
_SERVICES = f"/api/v1/namespaces/{names.NAMESPACE}/services"
_SERVICE = f"{_SERVICES}/{names.EXTENDER_SERVICE}"
_FORWARD = (
    f"kubectl -n {names.NAMESPACE} port-forward pod/LEADER {names.EXTENDER_PORT} (the holder of "
    f"kubectl -n {names.NAMESPACE} get lease {names.EXTENDER_SERVICE}, without what follows its _), then add "
    f"--extender https://localhost:{names.EXTENDER_PORT} --ca ca.crt --token-file FILE"
)
_IDENTIFY = 'give one: --token "$(kubectl create token SERVICEACCOUNT)", of whom may get pods in that namespace'
_BAD_GATEWAY = frozenset({500, 502, 503})  # what the API server's proxy says where nobody answers as it was asked


class Way(NamedTuple):
    """What was given on the command line; "" where nothing was."""

    extender: str
    token: str
    token_file: str
    ca: str
    kubeconfig: str


class _Inner(msgspec.Struct):
    reason: str = ""


class _Refusal(msgspec.Struct):
    """An error of the extender or of the API server, or an explanation."""

    error: _Inner | None = None
    message: str = ""
    outcome: str = ""  # of an explanation


def explanation(namespace: str, name: str, way: Way) -> bytes:
    """The JSON of an explanation. Raises UnreadableError with what to do."""
    path = f"/explain/{parse.quote(namespace, safe='')}/{parse.quote(name, safe='')}"
    return asyncio.run(_direct(path, way) if way.extender else _proxied(path, way))


async def _direct(path: str, way: Way) -> bytes:
    address = parse.urlsplit(way.extender)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise output.UnreadableError(f"--extender {way.extender}: an address such as https://localhost:8713 is needed")
    token = _token(way)
    if not token and way.kubeconfig:
        token = _bearer(await (await credentials.read(way.kubeconfig)).headers())
    if token and address.scheme == "http" and not _is_loopback(address.hostname):
        raise output.UnreadableError(f"--extender {way.extender}: the token would go there unencrypted; use https")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    status, body = await _got(way.extender.rstrip("/") + path, headers, trust=_trust(way.ca))
    return _answer(status, body, way.extender)


async def _proxied(path: str, way: Way) -> bytes:
    account = await credentials.read(_kubeconfig(way.kubeconfig))
    own = await account.headers()
    token = _token(way) or _bearer(own)
    if not token:
        raise output.UnreadableError(f"this kubeconfig has no token, and the extender wants one; {_IDENTIFY}")
    headers = {**own, names.PROXIED_AUTHORIZATION: f"Bearer {token}"}
    status, body = 0, b""
    for scheme in ("https", "http"):  # as the manifests have it, and as they say it may be for Volcano
        url = f"{account.host}{_SERVICES}/{scheme}:{names.EXTENDER_SERVICE}:{names.EXTENDER_PORT}/proxy{path}"
        status, body = await _got(url, headers, trust=account.tls, server_name=account.server_name, proxy=account.proxy)
        if status not in _BAD_GATEWAY:
            break
    return _answer(status, body, "the API server's proxy", f". Or: {_FORWARD}")


def _answer(status: int, body: bytes, where: str, instead: str = "") -> bytes:
    reason, ours = "", False
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        refusal = msgspec.json.decode(body, type=_Refusal)
        if status == 200 and refusal.outcome:
            return body
        ours = refusal.error is not None
        reason = failures.quotable(refusal.error.reason if refusal.error else refusal.message)
    if status == 200:
        fix = "check the URL, or `server:` in the kubeconfig"
        raise output.UnreadableError(f"{where} answers, but not as railwright's extender does; {fix}{instead}")
    if status == 404 and reason.startswith("no decision on"):
        instead = "; a pod is explained once a scheduler has asked the extender about it"
    elif status == 401 and ours:
        instead = f"; {_IDENTIFY}"
    elif not ours and not instead:
        raise output.UnreadableError(
            f"{where} answers, but not as railwright's extender does (status {status}); check the URL of --extender"
        )
    elif not ours:
        error = errors.ApiError(status, "", reason, _SERVICE, where=where, foreign=not reason)
        raise output.UnreadableError(f"{error.sentence}{instead}")
    raise output.UnreadableError(f"{where}: {reason or 'no explanation'} (status {status}){instead}")


async def _got(
    url: str,
    headers: Mapping[str, str],
    *,
    trust: ssl.SSLContext | bool,
    server_name: str | None = None,
    proxy: str | None = None,
) -> tuple[int, bytes]:
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.get(
                url, headers=headers, ssl=trust, server_hostname=server_name, proxy=proxy, allow_redirects=False
            ) as answer,
        ):
            return answer.status, await answer.read()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        reason, fix = failures.connection(url, error)
        raise output.UnreadableError(f"{reason}; {fix}. To reach the extender: {_FORWARD}") from None


def _kubeconfig(given: str) -> str:
    if there := given or kubeconfig.find_default():
        return there
    raise output.UnreadableError(f"no kubeconfig, so the extender has to be named: {_FORWARD}")


def _token(way: Way) -> str:
    if way.token or not way.token_file:
        return way.token
    try:
        return output.read_text(way.token_file).strip()
    except output.UnreadableError as error:
        raise output.UnreadableError(f"--token-file {error}") from error


def _bearer(headers: Mapping[str, str]) -> str:
    given = {name.lower(): value for name, value in headers.items()}.get("authorization", "")
    scheme, _, token = given.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _trust(ca: str) -> ssl.SSLContext:
    try:
        return tls.client_context(ca or None)
    except (OSError, ssl.SSLError) as error:
        raise output.UnreadableError(f"--ca {ca}: {error}") from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
