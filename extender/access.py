"""Authorizes readers of explanations and of the dashboard (docs/interface.md 4.2).

An explanation requires the right to `get` pods in its namespace. The dashboard requires the right to `get` its path, as
metrics do. The API server reviews the bearer token (TokenReview) and the rights of its user (SubjectAccessReview).
Without an API server, only callers on this machine are allowed.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from railwright.cluster import errors

Post = Callable[[str, bytes], Awaitable[bytes]]
"""POST to the API server: (path, body) -> body."""

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


_MAX_REVIEWS = 4  # at once: callers without a valid token must not keep the API server busy through this account
_MAX_WAITING = 100  # beyond these, a caller is to try again


def limit_reviews(post: Post) -> Post:
    """Return a `post` for the reviews of all callers of explanations and the dashboard: a few at once, others wait.

    It raises UnreachableError if too many wait.
    """
    slots, waiting = asyncio.Semaphore(_MAX_REVIEWS), 0

    async def review(path: str, body: bytes) -> bytes:
        nonlocal waiting
        if waiting >= _MAX_WAITING:
            raise errors.UnreachableError(f"{waiting} other requests wait for a review; try again in some seconds")
        waiting += 1
        try:
            await slots.acquire()
        finally:
            waiting -= 1
        try:
            return await post(path, body)
        finally:
            slots.release()

    return review


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _Status(msgspec.Struct):
    """The status of a TokenReview or of a SubjectAccessReview."""

    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def check_pod_access(authorization: str, namespace: str, peer: str, post: Post | None) -> tuple[int, str] | None:
    """Return None if the caller may get the pods of a namespace, otherwise (HTTP status, reason)."""
    attributes = {"resourceAttributes": {"namespace": namespace, "verb": "get", "version": "v1", "resource": "pods"}}
    return await _check_access(authorization, peer, post, attributes, f"get pods in namespace {namespace}")


async def check_path_access(authorization: str, path: str, peer: str, post: Post | None) -> tuple[int, str] | None:
    """Return None if the caller may get a non-resource path, otherwise (HTTP status, reason)."""
    attributes = {"nonResourceAttributes": {"path": path, "verb": "get"}}
    return await _check_access(
        authorization, peer, post, attributes, f"get {path}: a ClusterRole has to name this nonResourceURL"
    )


async def _check_access(
    authorization: str, peer: str, post: Post | None, attributes: Mapping[str, object], action: str
) -> tuple[int, str] | None:
    if post is None:
        return None if _is_loopback(peer) else (403, "without an API server, only callers on this machine are allowed")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return 401, 'a bearer token is needed: --header "Authorization: Bearer $(kubectl create token SERVICEACCOUNT)"'
    try:
        return await _review_token(token.strip(), post, attributes, action)
    except (errors.ClusterError, msgspec.MsgspecError) as error:
        return 503, f"the API server did not review this token: {error}"


async def _review_token(
    token: str, post: Post, attributes: Mapping[str, object], action: str
) -> tuple[int, str] | None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = await post(_TOKEN_REVIEWS, msgspec.json.encode(review))
    status = msgspec.json.decode(answer, type=_Review).status
    if not status.authenticated:
        return 401, "the API server does not know this token"
    return await _review_access(status.user, post, attributes, action)


async def _review_access(
    user: _User, post: Post, attributes: Mapping[str, object], action: str
) -> tuple[int, str] | None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": user.extra or {},
            **attributes,
        },
    }
    answer = await post(_ACCESS_REVIEWS, msgspec.json.encode(review))
    if msgspec.json.decode(answer, type=_Review).status.allowed:
        return None
    return 403, f"{user.username} may not {action}"


def _is_loopback(peer: str) -> bool:
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False
