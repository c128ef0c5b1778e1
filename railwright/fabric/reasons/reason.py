"""Defines a reason: a code of `codes`, a message, and the fix.

A reason is made where it is found, with its text. Reasons are hashable and comparable, so that equal ones can be
counted.
"""

from collections.abc import Iterable

import msgspec


class Reason(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """A reason for people and programs, as in JSON and annotations. A finding of lint has the code of its rule."""

    code: str
    message: str
    fix: str = ""  # "" if there is nothing to fix, or the message says it

    @property
    def text(self) -> str:
        """Return the message and the fix."""
        return f"{self.message}; {self.fix}" if self.fix else self.message

    @property
    def line(self) -> str:
        """Return code and text in one line, as in Events and warnings, which have no field for a code."""
        return f"{self.code}: {self.text}"

    def prefix_with(self, place: str) -> "Reason":
        """Return the reason with the name of its container, template or object before the message."""
        return msgspec.structs.replace(self, message=f"{place}: {self.message}")


def join_texts(reasons: Iterable[Reason]) -> str:
    """Return the texts of several reasons in one line."""
    return "; ".join([reason.text for reason in reasons])


class RefusedError(Exception):
    """Raised to end the plan of an injection with a Refusal. `reason` is a `RejectionCode`, `message` says the fix."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
