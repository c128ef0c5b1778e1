"""Limits the number of values in a review: each is decoded, planned and linted while other callers wait.

An API server passes objects of 3 MiB, which can hold a million list entries. Commas in the body are counted before it
is decoded, which takes a millisecond for the largest. There are as many as list entries and keys of maps, except those
in strings.
"""

from typing import Any

import msgspec

from railwright.fabric import names, views
from webhook import wire

MAX_POD_VALUES = 10_000  # above any pod in use: 2,000 variables with their managedFields
TOO_LARGE = "too-large"  # code of the rejection

# each field of a pod's spec undecoded, to name the largest
_Spec = msgspec.defstruct(
    "_Spec",
    [(field.encode_name, msgspec.Raw, msgspec.Raw()) for field in msgspec.structs.fields(views.PodSpec)],
    frozen=True,
)


class _Metadata(views.View, frozen=True):
    """The names in the metadata of an object."""

    name: str = ""
    generate_name: str = ""


class _Object(views.View, frozen=True):
    """An object of a review, of which only the name is decoded."""

    metadata: _Metadata = _Metadata()
    spec: msgspec.Raw = msgspec.Raw()


_REQUESTS = msgspec.json.Decoder(wire.Review[wire.Request[_Object]])
_SPECS: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Spec)


def count_values(body: bytes) -> int:
    """Return the number of commas in a body."""
    return bytes(body).count(b",")  # the server passes a large body as a memoryview, which cannot count


def build_response(body: bytes, limit: int) -> tuple[wire.Request[_Object], wire.Response] | None:
    """Return the request and its rejection if a review has more values than the limit, otherwise None.

    Raises wire.MalformedError for a body that is no review.
    """
    count = count_values(body)
    if count <= limit:
        return None
    request = wire.decode(_REQUESTS, body)
    tree = request.object or _Object()
    name = tree.metadata.name or f"{tree.metadata.generate_name}*"
    message = (
        f"{request.kind.kind} {request.namespace}/{name}: the object has about {count} list entries and keys"
        f"{_describe_largest(bytes(tree.spec))}; the limit is {limit} with label {names.FABRIC}: shorten its lists, "
        f"move settings into a ConfigMap, or opt out with {names.FABRIC}: {names.FABRIC_NONE}"
    )
    return request, wire.Response(allowed=False, message=message, cause=TOO_LARGE, audit={"refused": TOO_LARGE})


def _describe_largest(raw_spec: bytes) -> str:
    """Return the field of the spec with the most values, for a message; "" if it is no spec of a pod."""
    try:
        spec = _SPECS.decode(raw_spec)
    except wire.UNREADABLE:
        return ""
    counts = {field: count_values(bytes(getattr(spec, field))) for field in spec.__struct_fields__}
    field = max(counts, key=counts.__getitem__)
    return f", of which {counts[field]} in spec.{field}" if counts[field] else ""
