"""Renders reasons as users read them."""

from collections.abc import Iterable

from railwright.fabric.reasons import reason, rendering


def text(of: reason.Reason | None) -> str:
    """Return the text of a reason, "" if there is none."""
    return rendering.render(of) if of is not None else ""


def texts(of: Iterable[reason.Reason]) -> tuple[str, ...]:
    return tuple(map(rendering.render, of))
