"""Decodes AdmissionReview requests (admission.k8s.io/v1) and encodes the responses.

Checks the envelope and limits the size of responses. Decoding is typed and partial: fields that no handler reads are
skipped (managedFields is 45 % of a pod's review).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from railwright.fabric import text, views
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import AdmissionCode

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
MAX_WARNINGS = 8  # kubectl prints each on a line; the API server drops warnings beyond 4096 characters in total
MAX_WARNING = 256  # characters of one warning

T = TypeVar("T")

# msgspec raises UnicodeDecodeError for strings that are not UTF-8, and RecursionError for deep nesting
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class MalformedError(ValueError):
    """Raised for a body that this path cannot answer, with the reason as text. Becomes HTTP 400."""


class GroupVersionKind(msgspec.Struct, frozen=True):
    """The kind of an object."""

    group: str = ""
    version: str = ""
    kind: str = ""


class Request(msgspec.Struct, Generic[T], frozen=True, rename="camel"):
    """The request of a review, with a decoded object."""

    uid: str = ""
    kind: GroupVersionKind = GroupVersionKind()
    name: str = ""
    namespace: str = ""
    operation: str = ""
    sub_resource: str = ""
    dry_run: bool | None = None
    object: T | None = None


class WorkloadRequest(msgspec.Struct, frozen=True, rename="camel"):
    """The request in a review of a workload. Its objects stay encoded, because their fields depend on the kind."""

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
    """An AdmissionReview."""

    api_version: str = ""
    kind: str = ""
    request: R | None = None


class Target(msgspec.Struct, frozen=True):
    """The target of a Binding."""

    kind: str = ""
    name: str = ""


class Binding(msgspec.Struct, frozen=True):
    """A Binding. The metadata identify the pod, and the target is the node. Annotations need the metadata."""

    metadata: views.ObjectMeta
    target: Target = Target()


class Response(msgspec.Struct, frozen=True):
    """The response to a review. Without `operations` it has no patch. `code` to `cause` are for rejections."""

    allowed: bool = True
    operations: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[rendering.Message] = ()
    audit: Mapping[str, str] = {}
    code: int = 403
    message: str = ""
    cause: str = ""  # code of a rejection


class Reader(Generic[T]):
    """Decodes reviews of one kind of object."""

    def __init__(self, view: type[T], kind: str, api_version: str = "v1") -> None:
        self._kind = GroupVersionKind(*api_version.rpartition("/")[::2], kind)
        self._decoder = msgspec.json.Decoder(Review[Request[view]])  # type: ignore[valid-type]  # a type built at run time

    def read(self, body: bytes) -> Request[T]:
        """Return the request of a review. Raises MalformedError."""
        try:
            review: Review[Request[T]] = self._decoder.decode(body)
        except UNREADABLE as error:
            raise MalformedError(_describe_error(body, self._kind, error)) from None
        request = _get_request(review)
        _check_kind(request.kind, self._kind)
        return request


class _KindOfRequest(msgspec.Struct, frozen=True):
    """The kind of the object in a request."""

    kind: GroupVersionKind = GroupVersionKind()


class _KindOfReview(msgspec.Struct, frozen=True):
    """The request of a review, of which only the kind is read."""

    request: _KindOfRequest | None = None


_KINDS = msgspec.json.Decoder(_KindOfReview)


def read_kind(body: bytes) -> str:
    """Return the kind of the object in a review, "" if the body is malformed."""
    try:
        request = _KINDS.decode(body).request
    except UNREADABLE:
        return ""
    return "" if request is None else request.kind.kind


_WORKLOADS = msgspec.json.Decoder(Review[WorkloadRequest])


def read_workload(body: bytes) -> WorkloadRequest:
    """Return the request of a review of any kind, with its objects still encoded. Raises MalformedError."""
    return decode(_WORKLOADS, body)


def decode(decoder: msgspec.json.Decoder[Review[R]], body: bytes) -> R:
    """Return the request of a review of any kind. Raises MalformedError."""
    try:
        review = decoder.decode(body)
    except UNREADABLE as error:
        raise MalformedError(_describe_error(body, None, error)) from None
    return _get_request(review)


def write(uid: str, response: Response) -> bytes:
    """Encode the review that answers request `uid`."""
    return wrap_response(uid, encode_fields(response))


def encode_fields(response: Response) -> bytes:
    """Encode the fields of a response without the uid and the outer braces.

    Equal requests differ only in their uid, so a caller can cache these bytes.
    """
    fields: dict[str, Any] = {"allowed": response.allowed}
    if not response.allowed:
        fields["status"] = {"code": response.code, "message": response.message}
        if response.cause:  # a client of the API server gets it as a cause of the Status
            fields["status"]["details"] = {"causes": [{"reason": response.cause, "message": response.message}]}
    elif response.operations:
        fields["patchType"] = "JSONPatch"
        fields["patch"] = msgspec.json.encode(response.operations)  # as bytes, which are encoded in base64
    if response.warnings:
        fields["warnings"] = limit_warnings(response.warnings)
    if response.audit:
        fields["auditAnnotations"] = response.audit
    return msgspec.json.encode(fields)[1:-1]


def wrap_response(uid: str, fields: bytes) -> bytes:
    """Build the review from a request's uid and the encoded fields of its response."""
    return b'%b{"uid":%b,%b}}' % (_HEAD, msgspec.json.encode(uid), fields)


_HEAD = msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND})[:-1] + b',"response":'


def limit_warnings(warnings: Sequence[rendering.Message]) -> list[str]:
    """Return at most MAX_WARNINGS lines, each shortened to MAX_WARNING characters before its remedy.

    If there are more, the last line states how many were left out.
    """
    limited = [text.limit_warning(warning.line, MAX_WARNING) for warning in warnings]
    if len(limited) <= MAX_WARNINGS:
        return limited
    more = reason.make(AdmissionCode.MORE_WARNINGS, count=len(limited) - MAX_WARNINGS + 1)
    return [*limited[: MAX_WARNINGS - 1], rendering.describe(more).line]


def list_codes(warnings: Sequence[rendering.Message]) -> tuple[str, ...]:
    """Return the codes of warnings, for metrics."""
    return tuple([warning.code for warning in warnings])


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """A review with untyped fields. Used to describe the error in a review that does not decode."""

    api_version: Any = None
    kind: Any = None
    request: Any = None


def _get_request(review: Review[R]) -> R:
    """Check the envelope of a review and return its request."""
    _check_envelope(review.api_version, review.kind)
    request = review.request
    if request is None:
        raise MalformedError("the review has no request; only the API server's requests are answered")
    if not request.uid:
        raise MalformedError("request.uid is missing or empty")
    return request


def _describe_error(body: bytes, kind: GroupVersionKind | None, error: Exception) -> str:
    """Return the outermost error of a body that does not decode."""
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
        _check_envelope(envelope.api_version, envelope.kind)
        if kind is not None and isinstance(envelope.request, dict):
            _check_kind(msgspec.convert(envelope.request.get("kind"), GroupVersionKind), kind)
    except msgspec.ValidationError:
        pass  # `error` already states the path of the field
    except UNREADABLE:
        return f"the body is not JSON: {error}"
    except MalformedError as outer:
        return str(outer)
    return f"the review does not decode: {error}"


def _check_envelope(api_version: Any, kind: Any) -> None:
    if kind != KIND:
        raise MalformedError(f"kind is {_format_value(kind)}; expected {KIND}")
    if api_version != API_VERSION:
        raise MalformedError(
            f"apiVersion is {_format_value(api_version)}; expected {API_VERSION}: set admissionReviewVersions: [v1]"
        )


def _check_kind(actual: GroupVersionKind, kind: GroupVersionKind) -> None:
    if actual != kind:
        title = "/".join(filter(None, msgspec.structs.astuple(actual)))
        expected = "/".join(filter(None, (kind.group, kind.version)))
        raise MalformedError(f"request.kind is {_format_value(title)}; this path takes {expected} {kind.kind}")


def _format_value(value: Any) -> str:
    return text.abbreviate(repr(value), 100)
