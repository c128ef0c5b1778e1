"""Authorizes readers of explanations and of the dashboard (docs/interface.md 4.2).

An explanation requires the right to `get` pods in its namespace. The dashboard requires the right to `get` its path, as
metrics do. The API server reviews the bearer token (TokenReview) and the rights of its user (SubjectAccessReview).
Without an API server, only callers on the extender's machine may read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from railwright.cluster import errors
from railwright.serving import settings

Post = Callable[[str, object], Awaitable[bytes]]
"""POST to the API server: (path, body) -> body."""

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_UNAUTHENTICATED = (
    'the request has no bearer token: add --header "Authorization: Bearer $(kubectl create token SERVICEACCOUNT)"'
)
_REJECTED = (
    "the API server rejected this token: it is invalid, expired, or for another audience; get one with `kubectl create "
    "token SERVICEACCOUNT`"
)
_GRANT_REVIEWS = (
    "the extender's ServiceAccount needs permission to create tokenreviews and subjectaccessreviews: apply "
    "its ClusterRole and its binding again"
)
_MAX_REVIEWS = 4  # at once: callers without a valid token must not keep the API server busy through this account


def limit_reviews(post: Post) -> Post:
    """Return a `post` that sends at most _MAX_REVIEWS access reviews at the same time; the others wait."""
    slots = asyncio.Semaphore(_MAX_REVIEWS)

    async def post_review(path: str, body: object) -> bytes:
        async with slots:
            return await post(path, body)

    return post_review


class _Status(msgspec.Struct, frozen=True):
    """The status of a TokenReview or of a SubjectAccessReview."""

    authenticated: bool = False
    user: dict[str, Any] = {}
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


async def check_pod_access(authorization: str, namespace: str, peer: str, post: Post | None) -> tuple[int, str] | None:
    """Return None if the caller may get the pods of a namespace, otherwise (HTTP status, reason)."""
    attributes = {"resourceAttributes": {"namespace": namespace, "verb": "get", "version": "v1", "resource": "pods"}}
    return await _check_access(authorization, peer, post, attributes, f"get pods in namespace {namespace}")


async def check_path_access(authorization: str, path: str, peer: str, post: Post | None) -> tuple[int, str] | None:
    """Return None if the caller may get a non-resource path, otherwise (HTTP status, reason)."""
    attributes = {"nonResourceAttributes": {"path": path, "verb": "get"}}
    action = f"get {path}: a ClusterRole has to name this nonResourceURL"
    return await _check_access(authorization, peer, post, attributes, action)


async def _check_access(
    authorization: str, peer: str, post: Post | None, attributes: Mapping[str, object], action: str
) -> tuple[int, str] | None:
    if post is None:
        is_local = settings.Address(peer, 0).is_loopback
        return None if is_local else (403, "the extender has no API server to check tokens: call it on its own machine")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return 401, _UNAUTHENTICATED
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token.strip()}}
    access_review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    try:
        known = msgspec.json.decode(await post(_TOKEN_REVIEWS, review), type=_Review).status
        if not known.authenticated:
            return 401, _REJECTED
        name = known.user.pop("username", "")
        spec = {"user": name, **known.user, **attributes}
        answer = await post(_ACCESS_REVIEWS, {**access_review, "spec": spec})
        if msgspec.json.decode(answer, type=_Review).status.allowed:
            return None
    except (errors.ClusterError, msgspec.MsgspecError) as error:
        is_forbidden = isinstance(error, errors.ApiError) and error.status == 403
        fix = f"; {_GRANT_REVIEWS}" if is_forbidden else ""
        return 503, f"the API server did not answer the TokenReview or the SubjectAccessReview: {error}{fix}"
    return 403, f"{name} may not {action}"
