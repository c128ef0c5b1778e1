"""Decodes AdmissionReview requests (admission.k8s.io/v1), and encodes and describes the answers.

Checks the envelope, limits the number of values in a review and the size of responses. Decoding is typed and partial:
fields that no handler reads are skipped (managedFields is 45 % of a pod's review). An answer has the values for
metrics, logs and Events. Other modules count and log them after the response.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from railwright.fabric import names, text, views
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

ALLOWED, PATCHED, REFUSED = "allowed", "patched", "refused"
WOULD_PATCH, WOULD_REFUSE = "would-patch", "would-refuse"  # in mode `warn`, in which the object is admitted unchanged


class EventRecord(msgspec.Struct, frozen=True):
    """Messages about one pod, to be posted as Events on the object that creates such pods."""

    namespace: str
    owner: views.OwnerReference
    rejected: bool
    messages: tuple[str, ...]


class Answer(msgspec.Struct, frozen=True):
    """The answer to one review. Answers to equal requests differ in `uid`, `dry_run` and `events` only."""

    uid: str  # of the request
    fields: bytes  # of the response, after the uid
    outcome: str
    fabric: str = ""  # "" if no fabric is involved
    role: str = ""  # "" for any other object than a pod
    reason: str = ""  # reason code of a rejection
    warnings: Sequence[reasons.Reason] = ()
    dry_run: bool = False
    events: tuple[EventRecord, ...] = ()  # none on a dry run
    claimants: tuple[views.Pod, ...] = ()  # pods whose claim templates are to be written; none on a dry run

    @property
    def body(self) -> bytes:
        """Return the encoded review."""
        return b'%b{"uid":%b,%b}}' % (_HEAD, msgspec.json.encode(self.uid), self.fields)


_MAX_MESSAGE = 4096  # characters: a message contains names that users write and that are not validated yet


API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
_HEAD = msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND})[:-1] + b',"response":'
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


class UpdateRequest(Request[Any], frozen=True, rename="camel"):
    """The request of a review whose objects are plain data, because their fields depend on the kind."""

    old_object: Any = None


R = TypeVar("R", bound=Request[Any])


class Review(msgspec.Struct, Generic[R], frozen=True, rename="camel"):
    """An AdmissionReview, as the API server sends it."""

    api_version: str = ""
    kind: str = ""
    request: R | None = None


class Response(msgspec.Struct, frozen=True):
    """The response to a review. No `operations`: no patch. `code`, `message` and `cause` are for rejections."""

    allowed: bool = True
    operations: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[reasons.Reason] = ()
    audit: Mapping[str, str] = {}
    code: int = 403
    message: str = ""
    cause: str = ""  # code of a rejection


def reject(message: str, cause: str, audit: Mapping[str, str] = MappingProxyType({})) -> Response:
    """Return a rejection with its code."""
    limited = text.limit(message, _MAX_MESSAGE)
    return Response(allowed=False, message=limited, cause=cause, audit={**audit, "refused": cause})


def build_answer(  # noqa: PLR0913 - what metrics and Events report, by name
    request: Request[Any],
    response: Response,
    *,
    outcome: str = "",
    fabric: str = "",
    role: str = "",
    reason: str = "",
    events: tuple[EventRecord, ...] = (),
) -> Answer:
    """Return the answer with a response. The outcome and the reason are by default those of the response."""
    fields: dict[str, Any] = {"allowed": response.allowed}
    own = ALLOWED
    if not response.allowed:
        own = REFUSED
        fields["status"] = {"code": response.code, "message": response.message}
        if response.cause:  # a client of the API server gets it as a cause of the Status
            fields["status"]["details"] = {"causes": [{"reason": response.cause, "message": response.message}]}
    elif response.operations:
        own = PATCHED
        fields["patchType"] = "JSONPatch"
        fields["patch"] = msgspec.json.encode(response.operations)  # as bytes, which are encoded in base64
    if response.warnings:
        fields["warnings"] = limit_warnings(response.warnings)
    if response.audit:
        fields["auditAnnotations"] = response.audit
    return Answer(
        uid=request.uid,
        fields=msgspec.json.encode(fields)[1:-1],
        outcome=outcome or own,
        fabric=fabric,
        role=role,
        reason=reason or response.cause,
        warnings=response.warnings,
        dry_run=bool(request.dry_run),
        events=() if request.dry_run else events,
    )


def allow(request: Request[Any], warnings: Sequence[reasons.Reason] = ()) -> Answer:
    """Return an answer that admits the object unchanged."""
    return build_answer(request, Response(warnings=warnings))


def add_warnings(answer: Answer, warnings: Sequence[reasons.Reason]) -> Answer:
    """Return the answer with further warnings."""
    everything = (*answer.warnings, *warnings)
    fields = msgspec.json.decode(b"{%b}" % answer.fields) | {"warnings": limit_warnings(everything)}
    return msgspec.structs.replace(answer, fields=msgspec.json.encode(fields)[1:-1], warnings=everything)


def decode(decoder: msgspec.json.Decoder[Review[R]], body: bytes, kind: GroupVersionKind | None = None) -> R:
    """Return the request of a review of this kind (None: any kind). Raises MalformedError."""
    try:
        review = decoder.decode(body)
    except UNREADABLE as error:
        raise MalformedError(f"the review does not decode: {error}") from None
    if review.kind != KIND:
        raise MalformedError(f"kind is {_format_value(review.kind)}; expected {KIND}")
    if review.api_version != API_VERSION:
        found = _format_value(review.api_version)
        raise MalformedError(f"apiVersion is {found}; expected {API_VERSION}: set admissionReviewVersions: [v1]")
    request = review.request
    if request is None:
        raise MalformedError("the review has no request; only the API server's requests are answered")
    if not request.uid:
        raise MalformedError("request.uid is missing or empty")
    if kind is not None and request.kind != kind:
        title = "/".join(filter(None, msgspec.structs.astuple(request.kind)))
        raise MalformedError(f"request.kind is {_format_value(title)}; this path takes {kind.version} {kind.kind}")
    return request


def limit_warnings(warnings: Sequence[reasons.Reason]) -> list[str]:
    """Return at most MAX_WARNINGS lines of at most MAX_WARNING characters; truncation keeps the fix.

    If there are more, the last line states how many were left out.
    """
    limited = [text.limit_warning(warning.line, MAX_WARNING) for warning in warnings]
    if len(limited) <= MAX_WARNINGS:
        return limited
    count = text.format_count(len(limited) - MAX_WARNINGS + 1, "more warning")
    more = reasons.Reason(AdmissionCode.MORE_WARNINGS, f"and {count}", fix="fix these first to see them")
    return [*limited[: MAX_WARNINGS - 1], more.line]


def _format_value(value: Any) -> str:
    return text.truncate(repr(value), 100)


MAX_POD_VALUES = 10_000  # above any pod in use: 2,000 variables with their managedFields
TOO_LARGE = "too-large"  # code of the rejection


class _Metadata(views.View, frozen=True):
    """The names and annotations of an object."""

    name: str = ""
    generate_name: str = ""
    annotations: dict[str, str] | None = None


class _Object(views.View, frozen=True):
    """An object of a review, of which only names and annotations are decoded."""

    metadata: _Metadata = _Metadata()
    spec: msgspec.Raw = msgspec.Raw()


_REQUESTS = msgspec.json.Decoder(Review[Request[_Object]])


def reject_too_large(body: bytes, limit: int) -> tuple[Request[_Object], Response] | None:
    """Return the request and its rejection if its object has more list entries and keys than `limit`; else None.

    Raises MalformedError for a body that is not a review.
    """
    # between two commas is at least one character, so most bodies are too short to need a count
    if len(body) <= 2 * limit or (count := body.count(b",")) <= limit:
        return None
    request = decode(_REQUESTS, body)
    tree = request.object or _Object()
    name = tree.metadata.name or f"{tree.metadata.generate_name}*"
    largest = " and ".join(_list_largest(tree, count))
    message = (
        f"{request.kind.kind} {request.namespace}/{name}: the object has about {count} list entries and keys"
        f"{f', most in {largest}' if largest else ''}; the limit is {limit} with label {names.FABRIC}: shorten its "
        f"lists, move settings into a ConfigMap, or opt out with {names.FABRIC}: {names.FABRIC_NONE}"
    )
    return request, reject(message, TOO_LARGE)


_SHARE = 4  # a part is named that has a fourth of all entries
_MAX_NAME = 320  # characters of a named part: an annotation's key has 317 at most, and the fix comes after it


def _list_largest(tree: _Object, total: int) -> Iterator[str]:
    """Yield the spec and the annotations that have a fourth or more of all list entries and keys of an object."""
    annotations = {f"annotation {key}": value.count(",") for key, value in (tree.metadata.annotations or {}).items()}
    for name, entries in {"spec": bytes(tree.spec).count(b","), **annotations}.items():
        if entries * _SHARE >= total:
            yield f"{text.limit(name, _MAX_NAME)} (about {entries})"
