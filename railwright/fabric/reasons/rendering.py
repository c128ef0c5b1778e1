"""Turns reasons into text and JSON. All other modules pass reasons on as values.

The message of a code is a template in the table, or a function here if a template cannot express it. A template names
parameters as `str.format` does. A list with a count of the others (`reason.Some`) is joined by commas.
Formats beyond Python's: `{pods:count pod}` is `1 pod` or `3 pods`, `{leaves:count leaf, has}` also has the verb,
`{networks:short}` is about 60 characters of a name or list, `{rails:first}` a name or the first four of a list,
`{parts:all}` a whole list, `{causes:semicolons}` a list without the others, `{holders:others}` one without their
number, and `{expected:a}` a noun with its article. `{free:omit}` is nothing: a parameter for programs.
`[of {node}|anywhere]` is `of {node}`, or `anywhere` if the node is empty; the second part may be missing.

A function has one keyword-only argument for each parameter. Reasons among the parameters are texts already.
"""

import functools
import inspect
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from railwright.fabric import text
from railwright.fabric.reasons import codes
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
    return render_message(reason.code, {name: _render_nested(value) for name, value in reason.parameters})


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
        return render_message(code, recorded.parameters)
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


# --- the text of a message ---------------------------------------------------------------------------------

FULL_BANDWIDTH = 0.995  # 0..1; higher values are formatted as full, because two decimals round them to 1.00
_CHOICE = re.compile(r"\[([^\]|]*)\|?([^\]]*)\]")


def render_message(code: reason_values.ReasonCode, parameters: Mapping[str, Any]) -> str:
    """Return the message of a code. Raises KeyError if a parameter is missing; others have no effect."""
    format_message = _FUNCTIONS.get(code.value)
    if format_message is not None:
        return format_message(**{name: parameters[name] for name in list_parameters(code)})
    return render_template(code.template, parameters)


def render_template(template: str, parameters: Mapping[str, Any]) -> str:
    """Return the text of a template. Raises KeyError if a parameter is missing."""
    return "".join([_render_part(part, parameters) for part in _parse(template)])


@functools.cache  # one entry for each row of the table of codes
def list_parameters(code: reason_values.ReasonCode) -> frozenset[str]:
    """Return the names of the parameters of a message."""
    if code.value in _FUNCTIONS:
        return frozenset(inspect.signature(_FUNCTIONS[code.value]).parameters)
    return frozenset(
        [
            field.name
            for part in _parse(code.template)
            for field in (*part.fields, *part.otherwise)
            if field.name is not None
        ]
    )


class _Field(NamedTuple):
    """A literal, and the parameter after it, if any."""

    literal: str
    name: str | None
    spec: str | None
    conversion: str | None


class _Part(NamedTuple):
    """A part of a template. If a parameter of a part in brackets is empty, `otherwise` takes its place."""

    fields: Sequence[_Field]
    is_choice: bool = False
    otherwise: Sequence[_Field] = ()


@functools.cache  # one entry for each row of the table of codes
def _parse(template: str) -> Sequence[_Part]:
    parts, start = [], 0
    for choice in _CHOICE.finditer(template):
        parts.append(_Part(_parse_fields(template[start : choice.start()])))
        parts.append(_Part(_parse_fields(choice[1]), is_choice=True, otherwise=_parse_fields(choice[2])))
        start = choice.end()
    return (*parts, _Part(_parse_fields(template[start:])))


def _parse_fields(template: str) -> Sequence[_Field]:
    return tuple(_Field(*field) for field in string.Formatter().parse(template))


def _render_part(part: _Part, parameters: Mapping[str, Any]) -> str:
    is_empty = part.is_choice and any(_is_empty(parameters[field.name]) for field in part.fields if field.name)
    return "".join(
        [
            literal if name is None else f"{literal}{_format(parameters[name], conversion, spec)}"
            for literal, name, spec, conversion in (part.otherwise if is_empty else part.fields)
        ]
    )


def _is_empty(value: Any) -> bool:
    return not (value.items if isinstance(value, reason_values.Some) else value)


def _format(value: Any, conversion: str | None, spec: str | None) -> str:
    name, _, argument = (spec or "").partition(" ")
    match name:
        case "count":
            noun, _, verb = argument.partition(", ")
            return text.format_count(_count(value), noun, verb)
        case "short":
            return text.join_fitting([value] if isinstance(value, str) else value)
        case "all":
            return ", ".join(value)
        case "first":
            return value if isinstance(value, str) else text.join_first(value, 4)
        case "a":
            return f"{'an' if value[0] in 'aeiou' else 'a'} {value}"
        case "others":
            return f"{', '.join(map(str, value.items))}{' and others' if value.more else ''}"
        case "omit":
            return ""
        case "semicolons":
            return "; ".join(value.items)
        case _ if isinstance(value, reason_values.Some):
            return _join(value)
        case _:
            return format(repr(value) if conversion == "r" else value, name)


def _count(value: int | reason_values.Some) -> int:
    return len(value.items) + value.more if isinstance(value, reason_values.Some) else value


def _join(some: reason_values.Some) -> str:
    return text.join_some(map(_format_item, some.items), some.more)


def _format_item(item: Any) -> str:
    """Format an item of a list: a name, or a name with a number."""
    match item:
        case (name, number):
            return f"{name} {number}"
        case _:
            return str(item)


# --- devices --------------------------------------------------------------------------------------------------


def _format_pair(*, devices: reason_values.Some, attribute: str) -> str:
    counts = [f"{count} {name}" for name, count in _list_pairs(devices)]
    more = [f"{devices.more} more"] if devices.more else []
    return f"no free pair: {' and '.join([*counts, *more])} needed with the same {attribute}"


def _format_topology_sizes(*, policy: str, scope: str, needs: Sequence[tuple[str, int, int]]) -> str:
    sizes = ", ".join(f"{count} {name} on {nodes}" for name, count, nodes in needs)
    cause = f"the resources need different numbers of NUMA nodes ({sizes}), which {policy} rejects"
    return _format_topology_manager(policy, scope, cause)


def _format_topology_devices(
    *,
    policy: str,
    scope: str,
    numa_nodes: int,
    requested: Sequence[tuple[str, int]],
    free: Sequence[tuple[int, Sequence[tuple[str, int]]]],
) -> str:
    subject = "no NUMA node has" if numa_nodes == 1 else f"no {numa_nodes} NUMA nodes have"
    needed = ", ".join(f"{count} {name}" for name, count in requested)
    free_devices = "; ".join(
        f"node {node}: {', '.join(f'{count} {name}' for name, count in devices)}" for node, devices in free
    )
    return _format_topology_manager(policy, scope, f"{subject} {needed} free together (free: {free_devices})")


def _format_topology_manager(policy: str, scope: str, cause: str) -> str:
    return (
        f"kubelet would reject the pod (TopologyAffinityError): its topology manager has policy {policy}, "
        f"scope {scope}, and {cause}; request fewer devices or set topologyManagerPolicy: best-effort"
    )


def _format_uplinks(
    *, domain: str, nodes: int, oversubscription: float, carried: float, crossings: int, has_unused_links: bool
) -> str:
    size = f"{text.format_count(nodes, 'node')}, {oversubscription:g}:1"
    if has_unused_links:
        size += ", including the uplinks of rails that the gang does not use"
    share = f" for each of {crossings} crossings" if crossings > 1 else ""
    return f"the uplinks of {domain} ({size}) carry {carried:.2f}{share}"


# --- gangs ----------------------------------------------------------------------------------------------------


def _format_remaining(pods: int, slots_needed: int) -> str:
    """Return the start of a message: the number of unplaced pods."""
    if pods <= slots_needed:
        return text.format_count(slots_needed, "pod", "remains")
    return f"{pods} pods remain, which need as much as {slots_needed} of the largest"


def _format_capacity(*, pods: int, slots_needed: int, slots: int, rails: Sequence[str]) -> str:
    needs = ""
    if rails:
        shown = ", ".join(rails) if len(rails) <= reason_values.MAX_NAMED else f"{rails[0]}..{rails[-1]}"
        needs = f", each with {shown}"
    return f"{_format_remaining(pods, slots_needed)}{needs}; the cluster has slots for {slots}"


def _format_capacity_never(*, slots_needed: int, slots: int) -> str:
    owner, needed = "pod" if slots_needed == 1 else "gang", text.format_count(slots_needed, "slot")
    return f"the {owner} never fits: it needs {needed}, and without any other pod the eligible nodes have {slots}"


def _format_capacity_not_offered(*, pods: int, slots_needed: int, slots: int, not_offered: reason_values.Some) -> str:
    cause = f"offers no node of {_join(not_offered)}" if not_offered.items else "does not offer the others"
    return f"{_format_remaining(pods, slots_needed)}; the offered nodes have slots for {slots}; the scheduler {cause}"


def _format_minimum_leaves(
    *, pods: int, slots_needed: int, leaves: reason_values.Some, min_leaves: int, slots: int, bandwidth: float
) -> str:
    speed = "full bandwidth" if bandwidth >= FULL_BANDWIDTH else f"{bandwidth:.2f} of the bandwidth"
    enough = text.format_count(slots, "slot")
    if min_leaves == 2:
        [(leaf, _), *_] = _list_pairs(leaves)
        largest = f"the largest leaf at {speed}, {leaf}, has {enough}"
    else:
        largest = f"the {min_leaves - 1} largest leaves at {speed} have {enough} ({_join(leaves)})"
    minimum = text.format_count(min_leaves, "leaf")
    return f"{_format_remaining(pods, slots_needed)}; {largest}; {minimum} is the minimum"


def _list_pairs(some: reason_values.Some) -> Sequence[tuple[Any, Any]]:
    """Return items that are pairs, such as a name and its count."""
    return cast("Sequence[tuple[Any, Any]]", some.items)


def _format_not_exact(*, gap: float) -> str:
    if gap >= 1 - FULL_BANDWIDTH:
        return f"not every choice was tried: another could be better by at most {gap:.2f} of the bandwidth"
    return "not every choice was tried: another could be tighter at the same bandwidth"


def _format_policies_differ(*, versions: Sequence[tuple[str, int, reason_values.Some]], current: str) -> str:
    counts = "; ".join(
        f"{count} under {digest} ({', '.join(map(str, pods.items))}{', ...' if pods.more else ''})"
        for digest, count, pods in versions
    )
    return (
        f"{text.format_count(sum(count for _, count, _ in versions), 'pod', 'was')} admitted under "
        f"{len(versions)} versions of the policy: "
        f"{counts}; their injected settings may differ: recreate the pods that are not under the current version, "
        f"{current}"
    )


def _format_placement(
    *,
    pods: int,
    leaves: reason_values.Some,
    min_leaves: int,
    bandwidth: float,
    best: float,
    bound: float,
    outside: reason_values.Some,
    causes: reason_values.Some,
) -> str:
    quality = f"modelled bandwidth {bandwidth:.2f}, best possible {best:.2f}"
    if bound > best:
        quality += f" (upper bound {bound:.2f})"
    used = f"{text.format_count(_count(leaves), 'leaf')} ({_join(leaves)})"
    parts = [
        f"{text.format_count(pods, 'pod', 'runs')} on {used}; {min_leaves} was the minimum",
        quality + (f": {_join(causes)}" if causes.items else ""),
    ]
    if outside.items:
        parts.append(f"not on the planned leaves: {_join(outside)}")
    return "; ".join(parts)


def _format_pods_missing(*, missing: int, size: int) -> str:
    pods = text.format_count(size, "pod", "does", part=missing).replace(" of ", " of its ")
    return f"{pods} not exist yet"


# --- scores ---------------------------------------------------------------------------------------------------


def _format_target_leaf(*, leaf: str, placed: int, pods: int, slots: int, slots_needed: int) -> str:
    if slots < slots_needed < pods:
        share = f"as much as {slots} of the largest of the {pods} pods"
    elif slots < slots_needed:
        share = f"{slots} of the {text.format_count(pods, 'pod')}"
    else:
        share = f"all {pods} pods" if pods > 1 else "the last pod"
    return f"{leaf} has {placed} placed peers and slots for {share} to place"


_FUNCTIONS: Mapping[str, Callable[..., str]] = {
    "PairBusy": _format_pair,
    "TopologySizesDiffer": _format_topology_sizes,
    "TopologyDevicesBusy": _format_topology_devices,
    "UplinksLimit": _format_uplinks,
    "CapacityNever": _format_capacity_never,
    "CapacityInsufficient": _format_capacity,
    "CapacityNotOffered": _format_capacity_not_offered,
    "LeavesMinimum": _format_minimum_leaves,
    "PlanNotExact": _format_not_exact,
    "PoliciesDiffer": _format_policies_differ,
    "Placement": _format_placement,
    "PodsMissing": _format_pods_missing,
    "TargetLeaf": _format_target_leaf,
}
