"""AdmissionReview admission.k8s.io/v1: bytes -> what a handler reads, and a verdict -> bytes.

Owns the envelope, its errors and the bounds of what is sent back. Decoding is typed and partial: what nobody reads
(managedFields is 45 % of a pod's review) is skipped, never built. Refuses to know what a pod is for.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from railwright.fabric import views
from railwright.fabric.injection import model

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
MAX_WARNINGS = 8  # kubectl prints each on a line; the API server drops what goes over 4096 characters in all
MAX_WARNING = 256  # characters of one warning

T = TypeVar("T")

# a string that is not UTF-8 is no DecodeError to msgspec, though no other body raises anything else
_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class MalformedError(ValueError):
    """The body is not a review this path can answer; the text says why. HTTP 400."""


class GroupVersionKind(msgspec.Struct, frozen=True):
    """Which kind an object is of."""

    group: str = ""
    version: str = ""
    kind: str = ""


class Request(msgspec.Struct, Generic[T], frozen=True, rename="camel"):
    """What the API server asks."""

    uid: str = ""
    kind: GroupVersionKind = GroupVersionKind()
    name: str = ""
    namespace: str = ""
    operation: str = ""
    sub_resource: str = ""
    dry_run: bool | None = None
    object: T | None = None


class WorkloadRequest(msgspec.Struct, frozen=True, rename="camel"):
    """What the API server asks about a workload: only its kind tells which fields its objects have."""

    uid: str = ""
    kind: GroupVersionKind = GroupVersionKind()
    name: str = ""
    namespace: str = ""
    operation: str = ""
    sub_resource: str = ""
    dry_run: bool | None = None
    object: msgspec.Raw = msgspec.Raw()
    old_object: msgspec.Raw = msgspec.Raw()


R = TypeVar("R", bound=Request[Any] | WorkloadRequest)


class Review(msgspec.Struct, Generic[R], frozen=True, rename="camel"):
    """The envelope."""

    api_version: str = ""
    kind: str = ""
    request: R | None = None


class Target(msgspec.Struct, frozen=True):
    """Where a Binding binds to."""

    kind: str = ""
    name: str = ""


class Binding(msgspec.Struct, frozen=True):
    """A Binding: the pod by its metadata, the node by its target. Without metadata no annotation could be added."""

    metadata: views.ObjectMeta
    target: Target = Target()


class Verdict(msgspec.Struct, frozen=True):
    """What is answered. `operations` () is no patch at all; `code` and `message` are for refusals."""

    allowed: bool = True
    operations: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[str] = ()
    audit: Mapping[str, str] = {}
    code: int = 403
    message: str = ""


class Reader(Generic[T]):
    """Reads reviews of one kind of object."""

    def __init__(self, view: type[T], kind: str) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(Review[Request[view]])  # type: ignore[valid-type]  # a type made at run time

    def read(self, body: bytes) -> Request[T]:
        """The request of a review. Raises MalformedError."""
        try:
            review: Review[Request[T]] = self._decoder.decode(body)
        except _UNREADABLE as error:
            raise MalformedError(_why(body, self._kind, error)) from None
        request = _checked(review)
        _check_kind(request.kind, self._kind)
        return request


_WORKLOADS = msgspec.json.Decoder(Review[WorkloadRequest])


def read_workload(body: bytes) -> WorkloadRequest:
    """The request of a review of any kind, its objects not decoded yet. Raises MalformedError."""
    try:
        review = _WORKLOADS.decode(body)
    except _UNREADABLE as error:
        raise MalformedError(_why(body, None, error)) from None
    return _checked(review)


def write(uid: str, verdict: Verdict) -> bytes:
    """The review that answers request `uid`."""
    return addressed(uid, members(verdict))


def members(verdict: Verdict) -> bytes:
    """The members of the response but its uid, which alone differs between alike requests."""
    response: dict[str, Any] = {"allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = {"code": verdict.code, "message": verdict.message}
    elif verdict.operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(verdict.operations)).decode()
    if verdict.warnings:
        response["warnings"] = bounded(verdict.warnings)
    if verdict.audit:
        response["auditAnnotations"] = verdict.audit
    return msgspec.json.encode(response)[1:-1]


def addressed(uid: str, response: bytes) -> bytes:
    """The review with these members of the response."""
    return b'%b{"uid":%b,%b}}' % (_HEAD, msgspec.json.encode(uid), response)


_HEAD = msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND})[:-1] + b',"response":'


def bounded(warnings: Sequence[str]) -> list[str]:
    """At most MAX_WARNINGS of at most MAX_WARNING characters; the last one says how many are missing."""
    shown = [model.bounded(each, MAX_WARNING) for each in warnings]
    if len(shown) <= MAX_WARNINGS:
        return shown
    rest = len(shown) - MAX_WARNINGS + 1
    return [*shown[: MAX_WARNINGS - 1], f"and {rest} more warnings; they show once some of these are gone"]


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """The least of a review, to say what is wrong with one whose object does not decode."""

    api_version: Any = None
    kind: Any = None
    request: Any = None


def _checked(review: Review[R]) -> R:
    """The request of a review in its envelope."""
    _check_envelope(review.api_version, review.kind)
    request = review.request
    if request is None:
        raise MalformedError("the review has no request; only the API server's requests are answered")
    if not request.uid:
        raise MalformedError("request.uid is missing or empty")
    return request


def _why(body: bytes, kind: str | None, error: Exception) -> str:
    """The first thing wrong with a body, from the outside inwards."""
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
        _check_envelope(envelope.api_version, envelope.kind)
        if kind is not None and isinstance(envelope.request, dict):
            _check_kind(msgspec.convert(envelope.request.get("kind"), GroupVersionKind), kind)
    except msgspec.ValidationError:
        pass  # the first error names the place already
    except _UNREADABLE:
        return f"the body is not JSON: {error}"
    except MalformedError as outer:
        return str(outer)
    return f"the review does not decode: {error}"


def _check_envelope(api_version: Any, kind: Any) -> None:
    if kind != KIND:
        raise MalformedError(f"kind is {_shown(kind)}; expected {KIND}")
    if api_version != API_VERSION:
        raise MalformedError(
            f"apiVersion is {_shown(api_version)}; expected {API_VERSION}: set admissionReviewVersions: [v1]"
        )


def _check_kind(there: GroupVersionKind, kind: str) -> None:
    if (there.group, there.version, there.kind) != ("", "v1", kind):
        found = "/".join(part for part in (there.group, there.version, there.kind) if part)
        raise MalformedError(f"request.kind is {_shown(found)}; this path takes v1 {kind}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
