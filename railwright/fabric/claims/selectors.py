"""Evaluates CEL selectors of devices as kube-scheduler does (k8s.io/dynamic-resource-allocation/cel).

Uses Google's CEL library. Kubernetes' functions for versions and quantities are added here.
"""

import functools
import importlib
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from railwright.fabric import bounded_cache, quantity

Device = Mapping[str, Any]
"""The variable `device` of an expression: driver, and attributes and capacity by domain and name."""
Reference = tuple[str, str, str]
"""What an expression reads of a device: attributes or capacity, domain, name."""

_DOMAIN = re.compile(r"""device\.(attributes|capacity)\[\s*["']([^"']+)["']\s*\]""")
_REFERENCE = re.compile(_DOMAIN.pattern + r"""(?:\s*\.\s*|\s*\[\s*["'])([A-Za-z_]\w*)""")
_PROBLEM = re.compile(r"INVALID_ARGUMENT: ERROR: <input>:(\d+):(\d+): (.*?)(?: expecting |\n|$)")
_GUARD = re.compile(r"has\(\s*" + _REFERENCE.pattern + r"\s*\)")
_MEMBERSHIP = re.compile(r"""["']([A-Za-z_]\w*)["']\s+in\s+""" + _DOMAIN.pattern)
_DRIVER = re.compile(r"device\.driver\b")
_DEVICE = re.compile(r"\bdevice\b")
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+.*)?")
_MAX_RESULTS = 65536  # equal devices of a cluster's nodes share results; a node type has tens of them


class SelectorError(ValueError):
    """An expression cannot be compiled, or fails for a device. `problem` is CEL's message."""

    def __init__(self, expression: str, problem: str) -> None:
        super().__init__(f"{expression}: {problem}")
        self.problem = problem


class _Selector(NamedTuple):
    """A compiled expression, and what it reads of a device.

    `references` are None if the expression may read anything else.
    """

    program: Any  # cel.Expression
    domains: tuple[tuple[str, str], ...]
    references: tuple[Reference, ...] | None


_results: bounded_cache.BoundedCache[Hashable, bool | SelectorError] = bounded_cache.BoundedCache(_MAX_RESULTS)


def matches(expression: str, device: Device) -> bool:
    """Return whether a device, as `describe_device` returns it, matches the expression. Raises SelectorError.

    Results are cached by what the expression reads: the devices at one position of equal nodes differ in serial numbers
    and addresses only.
    """
    selector = _compile(expression)
    if selector.references is None:
        return _evaluate(expression, selector, device)
    key = (expression, *_read_inputs(device, selector.references))
    result = _results.get(key)
    if result is None:
        try:
            result = _evaluate(expression, selector, device)
        except SelectorError as error:
            result = error
        _results.add(key, result)
    if isinstance(result, SelectorError):
        raise result
    return result


def check_syntax(expression: str) -> None:
    """Raise SelectorError if an expression cannot be compiled, or has another result than true or false."""
    result = str(_compile(expression).program.return_type())
    if result not in ("BOOL", "DYN"):
        raise SelectorError(expression, f"its result is {result}, not true or false")


def list_references(expression: str) -> tuple[str, ...]:
    """Return the attributes that an expression names, as DOMAIN/NAME.

    CEL has `device.attributes["DOMAIN"].NAME` and `device.attributes["DOMAIN"]["NAME"]`.
    """
    matches = _REFERENCE.findall(expression)
    return tuple(dict.fromkeys(f"{domain}/{name}" for field, domain, name in matches if field == "attributes"))


def list_unguarded(expression: str) -> tuple[str, ...]:
    """Return the attributes, as DOMAIN/NAME, that an expression reads and never tests with has() or `in`.

    An attribute that is optional in the expression (`.?NAME`) is not among them.
    """
    guarded = {f"{domain}/{name}" for _, domain, name in _GUARD.findall(expression)}
    guarded |= {f"{domain}/{name}" for name, _, domain in _MEMBERSHIP.findall(expression)}
    return tuple(name for name in list_references(expression) if name not in guarded)


def match_all(expressions: Sequence[str], device: Device) -> bool:
    """Return whether a device matches all expressions. It does not match one that fails, as in kube-scheduler."""
    try:
        return all(matches(expression, device) for expression in expressions)
    except SelectorError:
        return False


def find_inputs(expressions: Iterable[str]) -> tuple[Reference, ...] | None:
    """Return what these expressions read of a device. Return None if one of them may read anything else."""
    references: dict[Reference, None] = {}
    for expression in expressions:
        try:
            read = _compile(expression).references
        except SelectorError:
            continue  # it fails for every device
        if read is None:
            return None
        references.update(dict.fromkeys(read))
    return tuple(references)


def _read_inputs(device: Device, references: Iterable[Reference]) -> tuple[object, ...]:
    values = [_get_value(device, reference) for reference in references]
    return (device["driver"], *[(type(value), value) for value in values])


def _get_value(device: Device, reference: Reference) -> object:
    field, domain, name = reference
    return device[field].get(domain, {}).get(name)


def _evaluate(expression: str, selector: _Selector, device: Device) -> bool:
    described = dict(device)
    for field, domain in selector.domains:  # a domain that the device lacks is an empty map, not an error
        if domain not in described[field]:
            described[field] = {**described[field], domain: {}}
    try:
        result = selector.program.eval(data={"device": described}).value()
    except RuntimeError as error:  # such as too many iterations
        raise SelectorError(expression, str(error)) from None
    except TypeError:  # the library cannot return an optional value
        raise SelectorError(expression, "its result is neither true nor false") from None
    if not isinstance(result, bool):
        raise SelectorError(expression, str(result))
    return result


@functools.lru_cache(maxsize=1024)  # a cluster has few classes, and its claims few templates
def _compile(expression: str) -> _Selector:
    try:
        program = _build_environment().compile(expression)
    except (RuntimeError, ValueError) as error:
        raise SelectorError(expression, _shorten(str(error))) from None
    references = _REFERENCE.findall(expression)
    known = len(references) + len(_DRIVER.findall(expression))
    return _Selector(
        program=program,
        domains=tuple(dict.fromkeys(_DOMAIN.findall(expression))),
        references=tuple(dict.fromkeys(references)) if known == len(_DEVICE.findall(expression)) else None,
    )


def _shorten(message: str) -> str:
    """Return the first line of CEL's message about an expression, with the position in words."""
    match = _PROBLEM.match(message)
    if match is None:
        return message
    line, column, problem = match.groups()
    return f"line {line}, character {column}: {problem}"


@functools.cache
def _build_environment() -> Any:
    """Return the environment of device selectors: `device`, and Kubernetes' functions of quantities and versions.

    Both types are strings here, and a version has three numbers, so that they can be told apart. The library is loaded
    with the first selector: it takes 20 MiB, which clusters without Dynamic Resource Allocation do not need.
    """
    cel = importlib.import_module("cel_expr_python.cel")
    bindings, optional, strings = (
        importlib.import_module(f"cel_expr_python.ext.ext_{name}") for name in ("bindings", "optional", "strings")
    )
    text, number, boolean = cel.Type.STRING, cel.Type.INT, cel.Type.BOOL
    functions = [
        cel.FunctionDecl("quantity", [cel.Overload("quantity", text, [text], False, str)]),
        cel.FunctionDecl("semver", [cel.Overload("semver", text, [text], False, str)]),
        cel.FunctionDecl("compareTo", [cel.Overload("compare_to", number, [text, text], True, _compare)]),
        cel.FunctionDecl(
            "isGreaterThan", [cel.Overload("greater", boolean, [text, text], True, lambda a, b: _compare(a, b) > 0)]
        ),
        cel.FunctionDecl(
            "isLessThan", [cel.Overload("less", boolean, [text, text], True, lambda a, b: _compare(a, b) < 0)]
        ),
    ]
    extensions = [bindings.ExtBindings(), optional.ExtOptional(), strings.ExtStrings()]
    return cel.NewEnv(variables={"device": cel.Type.DYN}, extensions=extensions, functions=functions)


def _compare(left: str, right: str) -> int:
    """Return -1, 0 or 1 for two versions or two quantities."""
    first, second = _VERSION.fullmatch(left), _VERSION.fullmatch(right)
    if first is not None and second is not None:
        a, b = _order_version(first), _order_version(second)
        return (a > b) - (a < b)
    amount, other = quantity.parse_milli(left), quantity.parse_milli(right)
    return (amount > other) - (amount < other)


def _order_version(version: re.Match[str]) -> tuple[object, ...]:
    """Return the key that orders versions (semver.org, item 11): a pre-release comes before its release."""
    major, minor, patch, pre_release = version.groups()
    parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in (pre_release or "").split("."))
    return (int(major), int(minor), int(patch), not pre_release, parts)
