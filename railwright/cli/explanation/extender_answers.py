"""Asks a running extender to explain a pod, through the API server's proxy.

The proxy strips the header of a token, so the extender gets it in a header of its own.
"""

import contextlib
from typing import Any
from urllib import parse

import msgspec

from railwright.cli import output
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, watch_wire
from railwright.fabric import names
from railwright.fabric.overview import overview_types
from railwright.fabric.workloads import frameworks

_SERVICES = f"/api/v1/namespaces/{installed_names.NAMESPACE}/services"
_IDENTIFY = (
    "give a token of an account that may get pods in that namespace: kubectl create token NAME, and --token-file FILE"
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
_BAD_GATEWAY = frozenset({500, 502, 503})  # of the API server's proxy, if the backend does not respond by that scheme


class NoExtenderError(output.UnreadableError):
    """Raised if the extender gave no explanation. The message has the cause and the fix."""


async def ask_extender(client: clients.Client, namespace: str, name: str, given: str) -> overview_types.Explanation:
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
            cause, may_be_scheme = _describe_failure(error)
            if not may_be_scheme:
                break
        except watch_wire.UNREADABLE:
            cause = f"{_PROXY} responds, but not as railwright's extender does; check `server:` in the kubeconfig"
            break
    raise NoExtenderError(cause)


def _describe_failure(error: errors.ApiError) -> tuple[str, bool]:
    """Return the cause and the fix, and True if the other scheme (https or http) may work.

    The error is the extender's own, or that of the API server's proxy.
    """
    body: Any = None
    with contextlib.suppress(*watch_wire.UNREADABLE):
        body = msgspec.json.decode(error.body)
    if own := frameworks.get_mapping(body, "error"):
        reason = errors.quote_message(str(own.get("reason") or "")) or "no explanation"
        return f"{_PROXY}: {reason} (status {error.status}){_FIXES.get(error.status, '')}", False
    reason = errors.quote_message(str(frameworks.get_mapping(body).get("message") or ""))
    if reason and error.status in _PROXY_ERRORS:
        return _PROXY_ERRORS[error.status], False
    if reason and error.status in _BAD_GATEWAY:
        return f"{_PROXY} cannot reach the extender: {reason}; to see why: railwright check", True
    return error.sentence, error.status in _BAD_GATEWAY
