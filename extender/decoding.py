"""Decodes request bodies, and reports those that do not decode."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")


class MalformedError(ValueError):
    """Raised for a body that does not follow the protocol. The message is the reason shown to the caller."""


def decode_body(decode: Callable[[bytes], T], body: bytes) -> T:
    """Decode a body. Raises MalformedError with the reason, which does not repeat the body."""
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"not the expected JSON: {error}") from error
