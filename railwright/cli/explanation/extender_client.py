"""Fetches the extender's explanation of a pod: from a given URL, or through the API server's proxy.

A token is sent only to the host that the user named, and never unencrypted over a network.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib import parse

import aiohttp
import msgspec

from railwright.cli import cluster_access, options, output
from railwright.cluster import credentials, errors, failures, installed_names, kubeconfigs
from railwright.fabric import names
from railwright.serving import settings

SECONDS = 30.0  # for one answer
_SERVICES = f"/api/v1/namespaces/{installed_names.NAMESPACE}/services"
_SERVICE = f"{_SERVICES}/{installed_names.EXTENDER}"
_FORWARD = (
    f"kubectl -n {installed_names.NAMESPACE} port-forward pod/LEADER {names.EXTENDER_PORT} (the holder of "
    f"kubectl -n {installed_names.NAMESPACE} get lease {installed_names.EXTENDER}, without the part after _), then add "
    f"--extender https://localhost:{names.EXTENDER_PORT} --ca ca.crt --token-file FILE"
)
_IDENTIFY = (
    'give one: --token "$(kubectl create token SERVICEACCOUNT)", of an account that may get pods in that namespace'
)
_BAD_GATEWAY = frozenset({500, 502, 503})  # of the API server's proxy, if the backend does not respond by that scheme
_UNREVIEWED = 503  # of the extender, if the API server does not review a token


class Target(NamedTuple):
    """Options of the command line; "" if not given."""

    extender: str
    token: str
    token_file: str
    ca: str
    cluster: options.ClusterOptions


class NoDecisionError(output.UnreadableError):
    """The extender has stored no decision on the pod."""


class NoExtenderError(output.UnreadableError):
    """The extender explained nothing through the API server. `cause` is the message without other ways to ask it.

    `has_answered` is true if it was asked and has no decision on the pod.
    """

    def __init__(self, cause: str, message: str, *, has_answered: bool = False) -> None:
        super().__init__(message)
        self.cause, self.has_answered = cause, has_answered


class _ErrorDetail(msgspec.Struct):
    reason: str = ""


class _Answer(msgspec.Struct):
    """An error of the extender or of the API server, or an explanation."""

    error: _ErrorDetail | None = None
    message: str = ""
    outcome: str = ""  # of an explanation


def fetch_explanation(namespace: str, name: str, target: Target) -> bytes:
    """Return the JSON of an explanation. Raises UnreadableError with the fix."""
    path = f"/explain/{parse.quote(namespace, safe='')}/{parse.quote(name, safe='')}"
    return asyncio.run(_fetch_directly(path, target) if target.extender else _fetch_through_proxy(path, target))


async def _fetch_directly(path: str, target: Target) -> bytes:
    address = parse.urlsplit(target.extender)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise output.UnreadableError(f"--extender {target.extender}: give a URL such as https://localhost:8713")
    token = _read_token(target)
    if not token and target.cluster.is_given:
        token = _parse_bearer(await (await cluster_access.read_account(target.cluster)).headers())
    if token and address.scheme == "http" and not settings.Address(address.hostname, 0).is_loopback:
        raise output.UnreadableError(f"--extender {target.extender}: the token would go there unencrypted; use https")
    headers = [("Authorization", f"Bearer {token}")] if token else []
    url = target.extender.rstrip("/") + path
    status, body = await _get(url, headers, target.cluster.timeout, ssl=_build_trust(target.ca))
    return _read_answer(status, body, target.extender)


async def _fetch_through_proxy(path: str, target: Target) -> bytes:
    cluster = await _read_account(target.cluster)
    own_headers = await cluster.headers()
    token = _read_token(target) or _parse_bearer(own_headers)
    if not token:
        cause = "this kubeconfig has no token, and the extender requires one"
        raise NoExtenderError(cause, f"{cause}; {_IDENTIFY}")
    headers = [
        *own_headers.items(),
        *cluster.impersonation.list_headers(),
        (names.PROXIED_AUTHORIZATION, f"Bearer {token}"),
    ]
    connection = {"ssl": cluster.tls, "server_hostname": cluster.server_name, "proxy": cluster.proxy}
    status, body = 0, b""
    for scheme in ("https", "http"):  # the default of the manifests, and plain HTTP for Volcano
        url = f"{cluster.host}{_SERVICES}/{scheme}:{installed_names.EXTENDER}:{names.EXTENDER_PORT}/proxy{path}"
        status, body = await _get(url, headers, target.cluster.timeout, **connection)
        if status not in _BAD_GATEWAY or _is_own_error(body):
            break
    try:
        return _read_answer(status, body, "the API server's proxy", f". Or: {_FORWARD}")
    except output.UnreadableError as error:
        cause = str(error).partition(". Or: kubectl")[0]
        raise NoExtenderError(cause, str(error), has_answered=isinstance(error, NoDecisionError)) from None


def _is_own_error(body: bytes) -> bool:
    """True for an error of the extender, not of the proxy."""
    try:
        return msgspec.json.decode(body, type=_Answer).error is not None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _read_answer(status: int, body: bytes, where: str, instead: str = "") -> bytes:
    reason, ours = "", False
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        answer_body = msgspec.json.decode(body, type=_Answer)
        if status == 200 and answer_body.outcome:
            return body
        ours = answer_body.error is not None
        reason = failures.quote_message(answer_body.error.reason if answer_body.error else answer_body.message)
    if status == 200:
        fix = "check the URL, or `server:` in the kubeconfig"
        raise output.UnreadableError(f"{where} responds, but not as railwright's extender does; {fix}{instead}")
    if status == 404 and reason.startswith("no decision on"):
        raise NoDecisionError(reason)
    if status == _UNREVIEWED and ours:
        instead = "; if the extender lacks a permission, `railwright check` names it"
    elif status == 401 and ours:
        instead = f"; {_IDENTIFY}"
    elif not ours and not instead:
        raise output.UnreadableError(
            f"{where} responds, but not as railwright's extender does (status {status}); check the URL of --extender"
        )
    elif not ours:
        response = errors.ErrorResponse(status, "", reason, f"{_SERVICE}/proxy", where=where, foreign=not reason)
        raise output.UnreadableError(f"{failures.describe_response(response)}{instead}")
    raise output.UnreadableError(f"{where}: {reason or 'no explanation'} (status {status}){instead}")


async def _get(
    url: str, headers: Sequence[tuple[str, str]], seconds: float | None, **connection: Any
) -> tuple[int, bytes]:
    """Return status and body. `connection` are aiohttp's arguments for TLS and a proxy."""
    timeout = aiohttp.ClientTimeout(total=SECONDS if seconds is None else seconds)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.get(url, headers=headers, allow_redirects=False, **connection) as answer,
        ):
            return answer.status, await answer.read()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        reason, fix = failures.describe_connection(url, error)
        raise output.UnreadableError(f"{reason}; {fix}. To reach the extender: {_FORWARD}") from None


async def _read_account(cluster: options.ClusterOptions) -> credentials.Account:
    if not (cluster.kubeconfig or kubeconfigs.find()):
        raise output.UnreadableError(f"no kubeconfig, so give the extender's URL: {_FORWARD}")
    return await cluster_access.read_account(cluster)


def _read_token(target: Target) -> str:
    if target.token or not target.token_file:
        return target.token
    try:
        return output.read_text(target.token_file).strip()
    except output.UnreadableError as error:
        raise output.UnreadableError(f"--token-file {error}") from error


def _parse_bearer(headers: Mapping[str, str]) -> str:
    value = {name.lower(): value for name, value in headers.items()}.get("authorization", "")
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _build_trust(ca: str) -> ssl.SSLContext:
    try:
        return credentials.build_client_context(ca or None)
    except (OSError, ssl.SSLError) as error:
        raise output.UnreadableError(f"--ca {ca}: {error}") from None
