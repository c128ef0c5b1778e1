"""Asks a running extender to explain a pod, through the API server's proxy.

The proxy strips the header of a token, so the extender gets it in a header of its own.
"""

import contextlib
from urllib import parse

import msgspec

from railwright.cli import output
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names
from railwright.fabric import names

_SERVICES = f"/api/v1/namespaces/{installed_names.NAMESPACE}/services"
_SERVICE = f"{_SERVICES}/{installed_names.EXTENDER}"
_IDENTIFY = (
    "give one of an account that may get pods in that namespace: kubectl create token NAME, and --token-file FILE"
)
_FIXES = {  # of errors of the extender; it answers 503 if the API server does not review a token
    401: f"; {_IDENTIFY}",
    503: "; if the extender lacks a permission, `railwright check` names it",
}
_PROXY_ERRORS = {  # of the API server, which has not asked the extender
    403: f"you may not ask the extender; Role {installed_names.USER_ROLE} of namespace {installed_names.NAMESPACE} "
    "allows it",
    404: f"no extender is installed in namespace {installed_names.NAMESPACE}",
}
_NO_ENDPOINTS = "no endpoints available"
_BAD_GATEWAY = frozenset({500, 502, 503})  # of the API server's proxy, if the backend does not respond by that scheme


class NoExtenderError(output.UnreadableError):
    """Raised if the extender gave no explanation. The message has the cause and the fix."""


class _ErrorDetail(msgspec.Struct):
    reason: str = ""


class _Answer(msgspec.Struct):
    """An error of the extender or of the API server, or an explanation."""

    error: _ErrorDetail | None = None
    message: str = ""
    pod: str = ""  # of an explanation


def read_token(path: str) -> str:
    """Return the token in the file of --token-file; "" without one. Raise UnreadableError."""
    try:
        return output.read_text(path).strip() if path else ""
    except output.UnreadableError as error:
        raise output.UnreadableError(f"--token-file {error}") from error


async def ask(client: clients.Client, namespace: str, name: str, given: str) -> bytes:
    """Return the JSON of an explanation. Uses the token `given`, otherwise the kubeconfig's. Raises NoExtenderError."""
    path = f"/explain/{parse.quote(namespace, safe='')}/{parse.quote(name, safe='')}"
    token = given or await client.get_token()
    if not token:
        raise NoExtenderError(f"this kubeconfig has no token, and the extender requires one; {_IDENTIFY}")
    status, body = 0, b""
    for scheme in ("https", "http"):  # the default of the manifests, and plain HTTP for Volcano
        proxy = f"{_SERVICES}/{scheme}:{installed_names.EXTENDER}:{names.EXTENDER_PORT}/proxy{path}"
        try:
            body = await client.get(proxy, headers={names.PROXIED_AUTHORIZATION: f"Bearer {token}"})
            status = 200
        except errors.ApiError as error:
            status, body = error.status, error.body
        if status not in _BAD_GATEWAY or _read_error(body)[1]:
            break
    return _read_answer(status, body)


def _read_error(body: bytes) -> tuple[str, bool]:
    """Return the message of an error, and True if it is the extender's and not the proxy's."""
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        answer = msgspec.json.decode(body, type=_Answer)
        return errors.quote_message(answer.error.reason if answer.error else answer.message), answer.error is not None
    return "", False


def _read_answer(status: int, body: bytes) -> bytes:
    where = "the API server's proxy"
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if status == 200 and msgspec.json.decode(body, type=_Answer).pod:
            return body
    reason, is_own = _read_error(body)
    if not is_own and reason and status in _PROXY_ERRORS:
        raise NoExtenderError(_PROXY_ERRORS[status])
    if status == 200:
        cause = f"{where} responds, but not as railwright's extender does; check `server:` in the kubeconfig"
    elif is_own:
        cause = f"{where}: {reason or 'no explanation'} (status {status})"
    elif reason and status in _BAD_GATEWAY:
        problem = "no extender is ready" if _NO_ENDPOINTS in reason else f"{where} cannot reach the extender: {reason}"
        cause = f"{problem}; to see why: railwright check"
    else:
        cause = errors.ApiError(status, "", reason, f"{_SERVICE}/proxy", where=where, foreign=not reason).sentence
    raise NoExtenderError(f"{cause}{_FIXES.get(status, '') if is_own else ''}")
