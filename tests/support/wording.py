"""Renders reasons as users read them."""

from collections.abc import Iterable

from railwright.fabric.reasons.reason import Reason


def text(of: Reason | None) -> str:
    """Return the text of a reason, "" if there is none."""
    return of.text if of is not None else ""


def texts(of: Iterable[Reason]) -> tuple[str, ...]:
    return tuple(reason.text for reason in of)
