"""Decodes AdmissionReview requests (admission.k8s.io/v1), and encodes and describes the answers.

Checks the envelope, limits the number of values in a review and the size of responses. Decoding is typed and partial:
fields that no handler reads are skipped (managedFields is 45 % of a pod's review). An answer has the values for metrics
and Events, which `app` counts and posts.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from railwright.fabric import names, text, views
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

ALLOWED, PATCHED, REFUSED = "allowed", "patched", "refused"
UNKNOWN = "unknown"  # in metrics and audit annotations in place of a fabric or role that the policy does not define
WOULD_PATCH, WOULD_REFUSE = "would-patch", "would-refuse"  # in mode `warn`, in which the object is admitted unchanged


class Answer(msgspec.Struct, frozen=True):
    """The answer to one review, and its values for metrics and Events. Without `operations` there is no patch."""

    allowed: bool = True
    operations: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[reasons.Reason] = ()
    audit: Mapping[str, str] = {}
    code: int = 403  # this and the next two are of a rejection
    message: str = ""
    reason: str = ""  # its code, which a client of the API server gets as a cause of the Status
    fabric: str = ""  # "" if no fabric is involved
    role: str = ""  # "" for any other object than a pod
    unenforced: str = ""  # outcome in mode `warn`
    problem: str = ""  # the message of a rejection without the pod's name
    namespace: str = ""
    owner: views.OwnerReference | None = None  # of the pod: gets Events about it
    claimants: tuple[views.Pod, ...] = ()  # pods whose claim templates are to be written
    encoded: bytes = b""  # what `encode_without_uid` returns, for an answer that is sent again and again
    uid: str = ""  # of the request
    dry_run: bool = False

    def address_to(self, request: "Request[Any]", owner: views.OwnerReference | None = None) -> "Answer":
        """Return the answer with uid and namespace of its request. A dry run causes no Event and no claim template."""
        if request.dry_run:
            return msgspec.structs.replace(self, uid=request.uid, dry_run=True, claimants=())
        return msgspec.structs.replace(self, uid=request.uid, namespace=request.namespace, owner=owner)

    @property
    def outcome(self) -> str:
        """Return the label for metrics: allowed, patched, refused, would-patch or would-refuse."""
        if not self.allowed:
            return REFUSED
        return self.unenforced or (PATCHED if self.operations else ALLOWED)

    @property
    def body(self) -> bytes:
        """Return the AdmissionReview as JSON."""
        return b'%b{"uid":%b,%b}}' % (_HEAD, msgspec.json.encode(self.uid), self.encoded or self.encode_without_uid())

    def encode_without_uid(self) -> bytes:
        """Return the response as JSON without uid and outer braces, so that equal pods share it."""
        response: dict[str, Any] = {"allowed": self.allowed}
        if not self.allowed:
            response["status"] = {"code": self.code, "message": self.message}
            if self.reason:
                response["status"]["details"] = {"causes": [{"reason": self.reason, "message": self.message}]}
        elif self.operations:
            response["patchType"] = "JSONPatch"
            response["patch"] = msgspec.json.encode(self.operations)  # as bytes, which are encoded in base64
        if self.warnings:
            response["warnings"] = limit_warnings(self.warnings)
        if self.audit:
            response["auditAnnotations"] = self.audit
        return msgspec.json.encode(response)[1:-1]


_MAX_MESSAGE = 4096  # characters: a message contains names that users write and that are not validated yet
API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
_HEAD = msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND})[:-1] + b',"response":'
MAX_WARNINGS = 8  # kubectl prints each on a line; the API server drops warnings beyond 4096 characters in total
MAX_WARNING = 256  # characters of one warning
MAX_AUDIT = 1024  # characters of an audit annotation: a policy may give rails long names

T = TypeVar("T")

# msgspec raises UnicodeDecodeError for strings that are not UTF-8, and RecursionError for deep nesting
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class MalformedError(ValueError):
    """Raised for a body that is not a review of this path, with the reason as text. Causes HTTP 400."""


class GroupVersionKind(msgspec.Struct, frozen=True):
    """The API group, version and kind of an object."""

    group: str = ""
    version: str = ""
    kind: str = ""


class Request(msgspec.Struct, Generic[T], frozen=True, rename="camel"):
    """The request of a review, with its decoded objects."""

    uid: str = ""
    kind: GroupVersionKind = GroupVersionKind()
    name: str = ""
    namespace: str = ""
    operation: str = ""
    sub_resource: str = ""
    dry_run: bool | None = None
    object: T | None = None
    old_object: T | None = None  # before an update


class Review(msgspec.Struct, Generic[T], frozen=True, rename="camel"):
    """An AdmissionReview, as the API server sends it."""

    api_version: str = ""
    kind: str = ""
    request: Request[T] | None = None


def build_rejection(message: str, reason: str, fabric: str = "") -> Answer:
    """Return an answer that rejects the object. `reason` is the code of the rejection."""
    known = fabric or UNKNOWN
    return Answer(
        allowed=False,
        message=text.limit_message(message, _MAX_MESSAGE),
        reason=reason,
        audit={"fabric": known, "refused": reason},
        fabric=known,
    )


def decode_request(
    decoder: msgspec.json.Decoder[Review[T]], body: bytes, kind: GroupVersionKind | None = None
) -> Request[T]:
    """Return the request of a review, whose object must have this kind (None: any). Raises MalformedError."""
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
        raise MalformedError("request is missing in the review; the API server always sends it")
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


class _Object(views.View, frozen=True):
    """An object of a review, of which only the metadata is decoded."""

    metadata: views.ObjectMeta = views.ObjectMeta()


_REQUESTS = msgspec.json.Decoder(Review[_Object])


def reject_too_large(body: bytes, limit: int) -> tuple[Request[Any], Answer] | None:
    """Return a request and its rejection if the object has more list entries and keys than `limit`, otherwise None.

    Raises MalformedError for a body that is not a review.
    """
    # between two commas is at least one character, so most bodies are too short to need a count
    if len(body) <= 2 * limit or (count := body.count(b",")) <= limit:
        return None
    request = decode_request(_REQUESTS, body)
    metadata = (request.object or _Object()).metadata
    name = metadata.name or f"{metadata.generate_name}*"
    message = (
        f"{request.kind.kind} {request.namespace}/{name}: the object has about {count} list entries and keys; the "
        f"limit is {limit} with label {names.FABRIC}: shorten its lists and annotations, move settings into a "
        f"ConfigMap, or opt out with {names.FABRIC}: {names.FABRIC_NONE}"
    )
    return request, build_rejection(message, TOO_LARGE)
