"""Turns reasons into text and JSON. All other modules pass reasons on as values.

The text of each code is in `texts`, its meaning and fix in `codes`.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from railwright.fabric.reasons import reason as reason_values
from railwright.fabric.reasons import texts
from railwright.fabric.reasons.codes import Code


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reason for people and programs, as in every JSON answer."""

    code: Code
    message: str
    parameters: dict[str, Any] = {}


def render(reason: reason_values.Reason) -> str:
    """Return the text of a reason."""
    renderer = texts.RENDERERS[reason.code]
    parameters = {name: _render_nested(value) for name, value in reason.parameters}
    return renderer.format_map(parameters) if isinstance(renderer, str) else renderer(parameters)


def render_all(reasons: Iterable[reason_values.Reason]) -> str:
    """Return the texts of several reasons in one line."""
    return "; ".join(map(render, reasons))


@functools.lru_cache(maxsize=4096)  # thousands of nodes are filtered for a few reasons
def render_for_scheduler(reason: reason_values.Reason) -> str:
    """Return the text that a scheduler shows in the pod's status, with the name of the component."""
    return f"railwright: {render(reason)}"


def render_for_event(reasons: Sequence[reason_values.Reason]) -> str:
    """Return the message of an Event, which starts with the first code because Events have no field for it."""
    return f"{reasons[0].code.value}: {render_all(reasons)}" if reasons else ""


def describe(reason: reason_values.Reason) -> Message:
    """Return a reason with its text and its parameters as JSON values."""
    parameters = {name: _to_json(value) for name, value in reason.parameters}
    return Message(code=reason.code, message=render(reason), parameters=parameters)


def describe_all(reasons: Iterable[reason_values.Reason]) -> tuple[Message, ...]:
    """Return several reasons with their texts."""
    return tuple(map(describe, reasons))


def _render_nested(value: Any) -> Any:
    """Replace the reasons in a parameter by their texts."""
    match value:
        case reason_values.Reason():
            return render(value)
        case reason_values.Some():
            return reason_values.Some(tuple(map(_render_nested, value.items)), value.more)
        case tuple():
            return tuple(map(_render_nested, value))
        case _:
            return value


def _to_json(value: Any) -> Any:
    match value:
        case reason_values.Reason():
            return msgspec.to_builtins(describe(value))
        case reason_values.Some():
            items = [_to_json(item) for item in value.items]
            return {"items": items, "more": value.more} if value.more else {"items": items}
        case tuple():
            return [_to_json(item) for item in value]
        case _:
            return value
