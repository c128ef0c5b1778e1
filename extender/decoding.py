"""Decodes request bodies within limits, and rejects all others with a reason.

Callers are not always authenticated. A JSON value of two bytes takes a hundred bytes once it is decoded, and placement
visits some lists once for each node. So objects and lists stay raw until their bytes and values are counted.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from railwright.fabric import scheduling_views

MAX_NODES = 20_000  # in one request; Kubernetes is tested with 5,000 (kubernetes.io, considerations for large clusters)
MAX_NAME = 253  # characters of a name or UID (k8s.io/apimachinery/pkg/util/validation, DNS1123SubdomainMaxLength)
MAX_OBJECT = 3 << 20  # bytes; the API server accepts no larger request (k8s.io/apiserver, MaxRequestBodyBytes)
_MAX_VALUES = 100_000  # in an object, as sent
_SEPARATORS = (b",", b"{", b"[")  # JSON has at least one for each value, except the first
_MAX_ANNOTATIONS = 256 << 10  # bytes (k8s.io/apimachinery/pkg/api/validation, TotalAnnotationSizeLimitB)

T = TypeVar("T")
Buffer = bytes | bytearray | msgspec.Raw


class MalformedError(ValueError):
    """Raised for a body that does not follow the protocol. The message is the reason shown to the caller."""


def decode_body(decode: Callable[[Buffer], T], body: Buffer) -> T:
    """Decode a body. Raises MalformedError with the reason, which does not repeat the body."""
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"the body is not the expected JSON: {error}") from error


def decode_object(decode: Callable[[Buffer], T], raw: msgspec.Raw, title: str) -> T:
    """Decode an object of a body. Raises MalformedError if it is invalid, or too large for the API server."""
    text = bytes(raw)
    if len(text) > MAX_OBJECT:
        raise MalformedError(
            f"{title} has {len(text)} bytes: the API server stores no object of more than {MAX_OBJECT}"
        )
    if len(text) > _MAX_VALUES:  # otherwise it has fewer values than bytes
        check_count(title, sum(map(text.count, _SEPARATORS)), _MAX_VALUES, "values")
    return decode_body(decode, text)


def check_pod(pod: scheduling_views.Pod) -> None:
    """Raise MalformedError for a pod that is too large for the API server, or to place in bounded time."""
    metadata = pod.metadata
    check_names("the pod", (metadata.name, metadata.namespace, metadata.uid, pod.spec.scheduler_name))
    read = msgspec.json.encode((pod.spec, pod.status, metadata.owner_references_or_none))
    check_count("the pod", sum(map(read.count, _SEPARATORS)), scheduling_views.MAX_VALUES, "values in its spec")
    annotations = sum(map(len, metadata.annotations)) + sum(map(len, metadata.annotations.values()))
    check_count("the pod", annotations, _MAX_ANNOTATIONS, "bytes of annotations")


def check_names(title: str, names: Sequence[str], most: int = MAX_NAME) -> None:
    """Raise MalformedError if a name has more than `most` characters."""
    longest = max(map(len, names), default=0)
    check_count(title, longest, most, "characters in a name")


def check_count(title: str, count: int, most: int, unit: str) -> None:
    """Raise MalformedError if `count` is more than `most`."""
    if count > most:
        raise MalformedError(f"{title} has {count} {unit}: at most {most} are allowed")
