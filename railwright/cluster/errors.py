"""Errors of access to the API server: few classes, each with a reason and a fix.

`str(error)` is for logs and may contain the requested path. `error.sentence` is for people: it never contains a path,
a Python name or a memory address, whatever a library, a proxy or another program has sent. `kubeconfigs` describes
problems of a kubeconfig.
"""

import os
import re
from urllib import parse

_INTERNAL = re.compile(r"\b[A-Z]\w+(?:Error|Exception)\b|0x[0-9a-fA-F]+|/apis?/|Traceback|<[a-zA-Z!/]")
_LONGEST = 500  # characters quoted from another program's message
_ADDRESS = "check `server:` in the kubeconfig"
_FOREIGN = f"{_ADDRESS}: another program, a proxy or a login page is at that address"
_CONNECTION = (
    "check that the cluster runs and can be reached from here, and `server:`, `certificate-authority` and `proxy-url` "
    "in the kubeconfig"
)
_FIXES = {
    401: "the credentials are missing, expired, or those of another cluster: log in again, or correct the kubeconfig",
    404: "run `railwright check`: if railwright is not installed in this cluster, install it or use another context",
    409: "another client has changed the object meanwhile: run the command again",
    410: "the list has changed too much while it was read: run the command again",
    429: "the API server is busy: run the command again in a moment",
}
_ANONYMOUS = 'User "system:anonymous"'  # in the API server's answer to a request without credentials
_REQUEST_FIX = "check that this version of Kubernetes is supported"  # other statuses below 500
_RESOURCE = re.compile(
    r"/(?:api|apis/([^/?]+))/[^/?]+(?:/namespaces/([^/?]+)(?=/[^?]))?/([^/?]+)(?:/([^/?]+))?(?:/([^/?]+))?"
)
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SERVER_FIX = (
    "the API server, or a proxy before it, has failed: run the command again, and read the log of that program"
)


class ClusterError(Exception):
    """Base class: a request to the API server failed."""

    status = 0  # of the response, if the API server returned an error

    def __init__(self, text: str, *, reason: str = "", fix: str = "") -> None:
        super().__init__(text)
        self.reason = reason or text
        self.fix = fix

    @property
    def sentence(self) -> str:
        """The cause, then the fix, for the person who ran the command."""
        return f"{self.reason}; {self.fix}" if self.fix else self.reason


class ConfigurationError(ClusterError):
    """Raised if a kubeconfig, a service account or another file cannot be used. The message names it and the cause."""


class UnreachableError(ClusterError):
    """Raised if no response arrives, or only its beginning: the connection was refused, reset, silent or cut off."""


class ForeignError(ClusterError):
    """Raised if a response comes from a proxy or another program, not from a Kubernetes API server."""


class ApiError(ClusterError):
    """Raised for an error status from the API server."""

    def __init__(  # noqa: PLR0913 - the parts of the answer and of the request, by name
        self,
        status: int,
        reason: str,  # such as NotFound
        message: str,
        path: str,
        *,
        method: str = "GET",
        where: str = "the API server",
        foreign: bool = False,  # the body was not a Kubernetes Status
        body: bytes = b"",
        warnings: tuple[str, ...] = (),
    ) -> None:
        super().__init__(f"{path}: {status} {reason}: {message}", reason=reason)
        self.status, self.message = status, message
        self.foreign, self.body, self.warnings = foreign, body, warnings
        self._path, self._method, self._where = path, method, where

    @property
    def sentence(self) -> str:
        """The cause, then the fix, for the person who ran the command."""
        if self.foreign and self.status not in (401, 403):
            cause = f"{self._where} answers, but not as a Kubernetes API server does (status {self.status})"
            return f"{cause}; {_FOREIGN}"
        message = "" if self.foreign else quote_message(self.message)
        detail = f": {message}" if message else ""
        right = parse_permission(self._method, self._path)
        status = 401 if self.status == 403 and _ANONYMOUS in self.message else self.status
        if status == 403:
            question = f" (kubectl auth can-i {right})" if right else ""
            role = "Role" if " -n " in right else "ClusterRole"
            fix = f"ask an administrator of the cluster for a {role} with this right{question}"
            return f"you may not {right or 'read this'} (403 Forbidden{detail}); {fix}, or use an account that has it"
        fix = _FIXES.get(status, _SERVER_FIX if status >= 500 else _REQUEST_FIX)
        return f"{self._where} answers {self.status}{detail}; {fix}"


def build_unreachable_error(host: str, path: str, error: BaseException) -> UnreachableError:
    """Return the UnreachableError for `error`, which a request to `host` has raised. It has the message of `error`."""
    import ssl  # noqa: PLC0415 - `--help` imports this module and needs no TLS

    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    match cause:
        case TimeoutError():
            text = "no answer in time"
        case ssl.SSLCertVerificationError():
            text = f"its certificate is not trusted: {cause.verify_message}"
        case OSError(errno=int(number)) if number > 0 and not isinstance(cause, ssl.SSLError):  # which has its own
            text = os.strerror(number).lower()
        case _:
            text = str(getattr(cause, "message", "") or getattr(cause, "strerror", "") or cause)
    detail = quote_message(text) or "the answer is not HTTP"
    reason = f"cannot reach {format_origin(host)}: {detail}"
    return UnreachableError(f"{path}: {reason}", reason=reason, fix=_CONNECTION)


def build_foreign_error(host: str, path: str, detail: str = "") -> ForeignError:
    """Return the ForeignError for a response of `host` that no Kubernetes API server sends."""
    reason = f"{format_origin(host)} answers, but not as a Kubernetes API server does"
    return ForeignError(f"{path}: {reason}{f': {detail}' if detail else ''}", reason=reason, fix=_FOREIGN)


def format_origin(url: str) -> str:
    """Return scheme, host and port of a URL, without its user name and password."""
    try:
        address = parse.urlsplit(url)
    except ValueError:
        return url
    host = address.netloc.rpartition("@")[2]  # never print a password
    return f"{address.scheme}://{host}" if address.scheme and host else url or "the API server"


def quote_message(text: str) -> str:
    """Return another program's message in one line; "" if it has exception names, memory addresses, paths or HTML."""
    line = " ".join(text.split())[:_LONGEST]
    return "" if _INTERNAL.search(line) else line


def parse_permission(method: str, path: str) -> str:
    """Return the right that a request needs, as arguments of `kubectl auth can-i`; "" for a path without a resource."""
    match = _RESOURCE.match(path)
    if match is None:
        return ""
    group, namespace, resource, name, subresource = (parse.unquote(part or "") for part in match.groups())
    verb = _VERBS.get(method, "get")
    kind = f"{resource}.{group}" if group else resource
    parts = (
        "list" if verb == "get" and not name else verb,
        f"{kind}/{name}" if name else kind,
        subresource and f"--subresource={subresource}",
        f"-n {namespace}" if namespace else "-A",
    )
    return " ".join(filter(None, parts))
