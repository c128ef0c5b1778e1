"""Defines a reason for a warning, denial, refusal or score: a code of `codes`, a message, and the fix."""

from collections.abc import Iterable

import msgspec


class Reason(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """Reason with a code for programs, and a message and fix for people. The code of a lint finding is its rule's."""

    code: str
    message: str
    fix: str = ""  # "" if there is nothing to fix, or the message says it

    @property
    def text(self) -> str:
        """The message and the fix in one line."""
        return f"{self.message}; {self.fix}" if self.fix else self.message

    @property
    def line(self) -> str:
        """Code, message and fix in one line, for Events and warnings, which have no field for a code."""
        return f"{self.code}: {self.text}"

    def prefix_with(self, place: str) -> "Reason":
        """Return the reason with a place before its message: the name of a container, template or object."""
        return msgspec.structs.replace(self, message=f"{place}: {self.message}")


def join_texts(reasons: Iterable[Reason]) -> str:
    """Return messages and fixes of several reasons in one line."""
    return "; ".join([reason.text for reason in reasons])


class RefusedError(Exception):
    """Raised if a pod must be rejected. `reason` is a RejectionCode, `message` contains the fix."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
