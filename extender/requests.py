"""What every handler of this door says of a request it cannot read, and how it reads one."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")


class MalformedError(ValueError):
    """The body is not what the protocol says; the message is the reason shown to the caller."""


def decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    """The decoded body. Raises MalformedError with the reason and never shows the body back."""
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"not the expected JSON: {error}") from error
