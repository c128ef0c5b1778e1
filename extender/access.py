"""Who may read an explanation: whoever may `get` pods in its namespace, as the API server itself says; and who may
read the dashboard: whoever may `get` its path, as for metrics.

A bearer token is reviewed (TokenReview) and its user asked about (SubjectAccessReview). Without an API server there is
nobody to ask, and only callers on this machine are answered.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from railwright.cluster import errors

Post = Callable[[str, bytes], Awaitable[bytes]]
"""POST to the API server: (path, body) -> body."""

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


async def denied(authorization: str, namespace: str, peer: str, post: Post | None) -> tuple[int, str] | None:
    """None where the caller may get the pods of a namespace; else (status, reason)."""
    wanted = {"resourceAttributes": {"namespace": namespace, "verb": "get", "version": "v1", "resource": "pods"}}
    return await _denied(authorization, peer, post, wanted, f"get pods in namespace {namespace}")


async def denied_path(authorization: str, path: str, peer: str, post: Post | None) -> tuple[int, str] | None:
    """None where the caller may get a path that is no resource, as for metrics; else (status, reason)."""
    wanted = {"nonResourceAttributes": {"path": path, "verb": "get"}}
    return await _denied(
        authorization, peer, post, wanted, f"get {path}: a ClusterRole has to name this nonResourceURL"
    )


async def _denied(
    authorization: str, peer: str, post: Post | None, wanted: Mapping[str, object], told: str
) -> tuple[int, str] | None:
    if post is None:
        return None if _is_loopback(peer) else (403, "without an API server, explanations are for this machine only")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return 401, 'a bearer token is needed: --header "Authorization: Bearer $(kubectl create token ...)"'
    try:
        return await _refused(token.strip(), post, wanted, told)
    except (errors.ClusterError, msgspec.MsgspecError) as error:
        return 503, f"the API server did not say whether this token may read: {error}"


async def _refused(token: str, post: Post, wanted: Mapping[str, object], told: str) -> tuple[int, str] | None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = await post(_TOKEN_REVIEWS, msgspec.json.encode(review))
    status = msgspec.json.decode(answer, type=_TokenReview).status
    if not status.authenticated:
        return 401, "the API server does not know this token"
    return await _forbidden(status.user, post, wanted, told)


async def _forbidden(user: _User, post: Post, wanted: Mapping[str, object], told: str) -> tuple[int, str] | None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": user.extra or {},
            **wanted,
        },
    }
    answer = await post(_ACCESS_REVIEWS, msgspec.json.encode(review))
    if msgspec.json.decode(answer, type=_AccessReview).status.allowed:
        return None
    return 403, f"{user.username} may not {told}"


def _is_loopback(peer: str) -> bool:
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False
