"""Turns reasons into text and JSON. All other modules pass reasons on as values.

`codes` lists all reasons.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric.reasons import codes, texts
from railwright.fabric.reasons import reason as reason_values

_CODES: Mapping[str, reason_values.ReasonCode] = {
    code.value: code for code in (*codes.Code, *codes.AdmissionCode, *codes.VariableCode)
}


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reason for people and programs, as in every JSON answer. A finding of lint has the code of its rule."""

    code: str
    message: str
    parameters: dict[str, Any] = {}

    @property
    def line(self) -> str:
        """Return code and text in one line, as in Events and warnings, which have no field for a code."""
        return f"{self.code}: {self.message}"


def render(reason: reason_values.Reason) -> str:
    """Return the text of a reason."""
    return texts.render(reason.code, {name: _render_nested(value) for name, value in reason.parameters})


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


def locate(message: Message, place: str) -> Message:
    """Return the message with the name of its container, template or object before the text."""
    return msgspec.structs.replace(message, message=f"{place}: {message.message}")


@functools.lru_cache(maxsize=1024)  # the pods of a gang have the same few reasons
def record(reason: reason_values.Reason) -> reason_values.RecordedReason:
    """Return a reason as the injection record has it."""
    return reason_values.RecordedReason(reason.code.value, {name: _to_json(value) for name, value in reason.parameters})


def describe_recorded(recorded: reason_values.RecordedReason) -> Message:
    """Return a reason of a record with its text."""
    return Message(recorded.code, render_recorded(recorded), dict(recorded.parameters))


def render_recorded(recorded: reason_values.RecordedReason) -> str:
    """Return the text of a reason in a record, or its code if this version cannot render it."""
    code = _CODES.get(recorded.code)
    if code is None:
        return recorded.code
    try:
        return texts.render(code, recorded.parameters)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):  # a user wrote other parameters
        return recorded.code


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
