"""Describes failures of API requests by cause and fix. All commands use these messages.

No message contains a URL path, a Python class or a memory address, whatever a library, a proxy or another program has
sent. `kubeconfigs` describes problems of a kubeconfig.
"""

import errno
import http
import os
import re
import ssl
from collections.abc import Iterator
from urllib import parse

import aiohttp
import msgspec

from railwright.cluster import errors

_INTERNAL = re.compile(r"\b[A-Z]\w+(?:Error|Exception)\b|0x[0-9a-fA-F]+|/apis?/|Traceback|<[a-zA-Z!/]")
_LONGEST = 500  # characters quoted from another program's message
_NETWORK = (
    "check the network, the VPN and firewalls between this machine and the cluster, and `server:` in the kubeconfig"
)
_ADDRESS = "check `server:` in the kubeconfig"
_AUTHORITY = (
    "`certificate-authority-data` in the kubeconfig is not the CA that signed it: fetch the kubeconfig again, or find "
    "out who answers in the API server's place"
)
_FOREIGN = f"{_ADDRESS}: another program, a proxy or a login page is at that address"
_REFUSES_CLIENT = ("certificate required", "bad certificate", "unknown ca")  # OpenSSL's names of alerts
_NO_TLS = ("wrong version number", "record layer failure", "http request", "unknown protocol")
_STATUS_FIXES = {
    400: "the API server does not understand the request: check that the cluster's version is supported",
    401: "the credentials have expired or belong to another cluster: log in again, or renew them in the kubeconfig; "
    "to see who you are: kubectl auth whoami",
    405: _FOREIGN,
    409: "another client has changed it meanwhile: run this again",
    413: "the object is too large for the API server",
    422: "another client may have changed it meanwhile: run this again",
    429: "the API server is busy: run this again in a moment",
}
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SERVER_FIX = "the API server, or a proxy before it, has failed: run this again, and look at its log"


def build_unreachable(host: str, path: str, error: BaseException) -> errors.UnreachableError:
    """Return the error for a request without a response; `host` as in the kubeconfig."""
    reason, fix = describe_connection(host, error)
    return errors.UnreachableError(f"{path}: {reason}", reason=reason, fix=fix)


def build_silent(host: str, path: str) -> errors.SilentError:
    """Return the error for a watch that received nothing in time."""
    reason = f"{format_place(host)} sends nothing"
    return errors.SilentError(f"{path}: {reason}", reason=reason, fix=_NETWORK)


def build_foreign(host: str, path: str, detail: str = "") -> errors.ForeignError:
    """Return the error for a response that is not a Kubernetes API server's."""
    reason = f"{format_place(host)} answers, but not as a Kubernetes API server does"
    return errors.ForeignError(f"{path}: {reason}{f': {detail}' if detail else ''}", reason=reason, fix=_FOREIGN)


def build_api_error(response: errors.ErrorResponse) -> errors.ApiError:
    """Return the error for a response with an error status."""
    return errors.ApiError(response, describe_response(response))


def format_place(url: str) -> str:
    """Return scheme, host and port of a URL, which are safe to print."""
    try:
        address = parse.urlsplit(url)
    except ValueError:
        return url
    host = address.netloc.rpartition("@")[2]  # never print a password
    return f"{address.scheme}://{host}" if address.scheme and host else url or "the API server"


def quote_message(text: str) -> str:
    """Return another program's message in one line, or "" if it contains internals."""
    line = " ".join(text.split())[:_LONGEST]
    return "" if _INTERNAL.search(line) else line


def describe_connection(host: str, error: BaseException) -> tuple[str, str]:
    """Return (reason, fix) for a failed connection."""
    where, causes = format_place(host), [*_list_causes(error)]
    tls = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    match error:
        case aiohttp.InvalidURL():
            return f"{host!r} is not the address of an API server", f"{_ADDRESS}: https://HOST:PORT is expected"
        case aiohttp.ClientConnectorDNSError():
            name = parse.urlsplit(host).hostname or host
            return f"the name {name} cannot be resolved", f"{_ADDRESS}, DNS, and whether a VPN is needed"
        case aiohttp.ClientHttpProxyError() | aiohttp.ClientProxyConnectionError():
            return f"the proxy on the way to {where} cannot be used", "check `proxy-url:` in the kubeconfig"
        case TimeoutError():
            return f"{where} does not answer in time", _NETWORK
        case aiohttp.ClientResponseError():
            return f"{where} does not answer as an HTTP server does", f"{_ADDRESS}: http:// or https://, and the port"
        case _ if tls is not None:
            return _describe_tls_error(where, tls)
        case _:
            number = next((cause.errno for cause in causes if isinstance(cause, OSError) and cause.errno), 0)
            return _describe_system_error(where, error, number)


def _describe_system_error(where: str, error: BaseException, number: int) -> tuple[str, str]:
    if number == errno.ECONNREFUSED or "Connect call failed" in str(error):
        return f"nothing listens at {where}", "start the cluster or its tunnel, or choose another context or kubeconfig"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {where}{f': {os.strerror(number).lower()}' if number else ''}", _NETWORK
    return f"{where} closes the connection before it has answered", f"run this again; {_NETWORK}"


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and those that caused it or that aiohttp has wrapped in it."""
    current: BaseException | None = error
    while current is not None:
        wrapped = (getattr(current, name, None) for name in ("certificate_error", "os_error"))
        yield from (cause for cause in (*wrapped, current) if isinstance(cause, BaseException))
        current = current.__cause__ or current.__context__


def _describe_tls_error(where: str, error: ssl.SSLError) -> tuple[str, str]:
    if isinstance(error, ssl.SSLCertVerificationError):
        detail, fix = quote_message(error.verify_message) or "it cannot be verified", _AUTHORITY
        if "expired" in detail or "not yet valid" in detail:
            fix = "renew the API server's certificate, and check the clock of this machine"
        elif "mismatch" in detail:
            fix = f"{_ADDRESS}: use a name that is in the certificate, or give that name as `tls-server-name`"
        return f"the certificate of {where} is not trusted: {detail}", fix
    reason = str(error.reason or "").replace("_", " ").lower()
    if any(alert in reason for alert in _REFUSES_CLIENT):
        fix = "renew `client-certificate-data` in the kubeconfig: fetch the kubeconfig again"
        return f"{where} does not accept the client certificate ({reason})", fix
    if reason in _NO_TLS:
        return f"{where} does not speak TLS", f"{_ADDRESS}: https:// and port must be those of an API server"
    detail = f" ({reason})" if reason else ""
    return f"the TLS handshake with {where} fails{detail}", f"{_ADDRESS}, and proxies on the way"


# --- an answer with an error status -----------------------------------------------------------------------


def describe_response(response: errors.ErrorResponse) -> str:
    """Return the cause and the fix of an error status in one sentence."""
    if response.foreign and response.status not in (401, 403):
        reason = f"{response.where} answers, but not as a Kubernetes API server does (status {response.status})"
        return f"{reason}; {_FOREIGN}"
    if response.status == 404:
        return _describe_missing(response)
    if response.status == 401 and response.is_anonymous:
        reason = f"{response.where} does not accept requests without credentials (401 Unauthorized)"
        return f"{reason}; the kubeconfig has none for the user of this context: log in, or add them to it"
    if response.status == 401:
        return f"{response.where} does not accept the credentials (401 Unauthorized); {_STATUS_FIXES[401]}"
    message = "" if response.foreign else quote_message(response.message)
    detail = f": {message}" if message else ""
    if response.status == 403:
        return _describe_forbidden(response, detail)
    phrase = {status.value: status.phrase for status in http.HTTPStatus}.get(response.status, "")
    reason = f"{response.where} answers {response.status} {phrase}".rstrip()
    return f"{reason}{detail}; {_STATUS_FIXES.get(response.status, _SERVER_FIX)}"


class Permission(msgspec.Struct, frozen=True):
    """One permission, with the fields of the API's ResourceAttributes. `namespace` is "" for all namespaces."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""
    namespace: str = ""

    @property
    def kind(self) -> str:
        """The kind of objects, as for kubectl."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def __str__(self) -> str:
        """Return the permission as arguments of `kubectl auth can-i`."""
        target = f"{self.kind}/{self.name}" if self.name else self.kind
        subresource = self.subresource and f"--subresource={self.subresource}"
        scope = f"-n {self.namespace}" if self.namespace else "-A"
        return " ".join(filter(None, (self.verb, target, subresource, scope)))


def _describe_forbidden(response: errors.ErrorResponse, detail: str) -> str:
    """Return the right that a rejected request needs, as kubectl asks for it, and how to get it."""
    right = parse_permission(response.method, response.path)
    question = f" (kubectl auth can-i {right})" if right else ""
    role = "Role" if right and right.namespace else "ClusterRole"
    fix = f"ask an administrator of the cluster for a {role} with this right{question}, or use an account that has it"
    return f"you may not {right or 'read this'} (403 Forbidden{detail}); {fix}"


def parse_permission(method: str, path: str) -> Permission | None:
    """Return the permission that a request needs; None for a path that is no resource, such as /version."""
    namespace, resource, name, subresource = _split_path(path)
    _, root, group, *_ = [*path.split("/"), "", "", ""]
    if root not in ("api", "apis") or not resource:
        return None
    verb = _VERBS.get(method, "get")
    verb = "list" if verb == "get" and not name else verb
    return Permission(verb, group if root == "apis" else "", resource, subresource, name, namespace)


def _describe_missing(response: errors.ErrorResponse) -> str:
    namespace, resource, name, _ = _split_path(response.path)
    if response.message.startswith("namespaces "):  # a write into a missing namespace
        return f"namespace {namespace} does not exist; create namespace {namespace} first, or install railwright"
    if not name:
        return f"{response.where} does not know {resource or 'this path'}; {_ADDRESS}, and the cluster's version"
    where = f" in namespace {namespace}" if namespace else ""
    missing = f"there is no {_singularize(resource)} {name}{where}"
    if namespace.startswith("railwright") or name.startswith("railwright"):
        return f"railwright is not installed in this cluster: {missing}; install it, or look closer: railwright check"
    return f"{missing}; create it first, or check the context: kubectl config current-context"


def _singularize(resource: str) -> str:
    """Return the singular of the name of an API resource: `pod` for pods, `deviceclass` for deviceclasses."""
    for ending, singular in (("ies", "y"), ("sses", "ss"), ("endpoints", "endpoints"), ("s", "")):
        if resource.endswith(ending):
            return resource.removesuffix(ending) + singular
    return resource


def _split_path(path: str) -> tuple[str, str, str, str]:
    """Return (namespace, resource, name, subresource) of an API path; "" for missing parts."""
    steps = [parse.unquote(step) for step in path.partition("?")[0].strip("/").split("/")]
    steps = steps[3:] if steps[:1] == ["apis"] else steps[2:]
    namespace = ""
    if len(steps) > 2 and steps[0] == "namespaces":
        namespace, steps = steps[1], steps[2:]
    resource, name, subresource = [*steps, "", "", ""][:3]
    return namespace, resource, name, subresource
