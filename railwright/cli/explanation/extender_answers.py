"""Asks a running extender to explain a pod, through the API server's proxy.

The proxy strips the header of a token, so the extender gets it in a header of its own.
"""

from urllib import parse

import msgspec

from railwright.cli import output
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, watch_wire
from railwright.fabric import names
from railwright.fabric.overview import overview_types
from railwright.fabric.workloads import frameworks

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
_PROXY = "the API server's proxy"
_NO_ENDPOINTS = "no endpoints available"
_BAD_GATEWAY = frozenset({500, 502, 503})  # of the API server's proxy, if the backend does not respond by that scheme


class NoExtenderError(output.UnreadableError):
    """Raised if the extender gave no explanation. The message has the cause and the fix."""


def read_token(path: str) -> str:
    """Return the token in the file of --token-file; "" without one. Raise UnreadableError."""
    try:
        return output.read_text(path).strip() if path else ""
    except output.UnreadableError as error:
        raise output.UnreadableError(f"--token-file {error}") from error


async def ask(client: clients.Client, namespace: str, name: str, given: str) -> overview_types.Explanation:
    """Return the explanation of a pod. Uses the token `given`, otherwise the kubeconfig's. Raises NoExtenderError."""
    path = f"/explain/{parse.quote(namespace, safe='')}/{parse.quote(name, safe='')}"
    token = given or await client.get_token()
    if not token:
        raise NoExtenderError(f"this kubeconfig has no token, and the extender requires one; {_IDENTIFY}")
    cause = ""
    for scheme in ("https", "http"):  # the default of the manifests, and plain HTTP for Volcano
        proxy = f"{_SERVICES}/{scheme}:{installed_names.EXTENDER}:{names.EXTENDER_PORT}/proxy{path}"
        try:
            body = await client.get(proxy, headers={names.PROXIED_AUTHORIZATION: f"Bearer {token}"})
            return msgspec.json.decode(body, type=overview_types.Explanation)
        except errors.ApiError as error:
            reason, is_own = _read_failure(error.body)
            cause = _describe_failure(error.status, reason, is_own=is_own)
            if is_own or error.status not in _BAD_GATEWAY:
                break
        except watch_wire.UNREADABLE:
            cause = f"{_PROXY} responds, but not as railwright's extender does; check `server:` in the kubeconfig"
            break
    raise NoExtenderError(cause)


def _read_failure(body: bytes) -> tuple[str, bool]:
    """Return the message of an error, and True if it is the extender's and not the proxy's."""
    try:
        failure = msgspec.json.decode(body)
    except watch_wire.UNREADABLE:
        return "", False
    own = frameworks.get_mapping(failure, "error")
    text = own.get("reason") if own else frameworks.get_mapping(failure).get("message")
    return errors.quote_message(str(text or "")), bool(own)


def _describe_failure(status: int, reason: str, *, is_own: bool) -> str:
    """Return the cause and the fix for an error of the extender (`is_own`) or of the API server's proxy."""
    if is_own:
        return f"{_PROXY}: {reason or 'no explanation'} (status {status}){_FIXES.get(status, '')}"
    if reason and status in _PROXY_ERRORS:
        return _PROXY_ERRORS[status]
    if reason and status in _BAD_GATEWAY:
        problem = f"{_PROXY} cannot reach the extender: {reason}"
        return f"{'no extender is ready' if _NO_ENDPOINTS in reason else problem}; to see why: railwright check"
    return errors.ApiError(status, "", reason, f"{_SERVICE}/proxy", where=_PROXY, foreign=not reason).sentence
