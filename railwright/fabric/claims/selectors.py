"""Evaluates CEL selectors of devices as kube-scheduler does (k8s.io/dynamic-resource-allocation/cel).

Uses Google's CEL library. Kubernetes' functions for versions and quantities are added here.
"""

import functools
import re
from collections.abc import Mapping

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from railwright.fabric import quantity

_DOMAIN = re.compile(r"""device\.(attributes|capacity)\[\s*["']([^"']+)["']\s*\]""")
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+.*)?")


class SelectorError(ValueError):
    """An expression cannot be compiled, or fails for a device; the message is CEL's."""


def matches(expression: str, device: Mapping[str, object]) -> bool:
    """Return whether a device, as `describe_device` returns it, matches the expression. Raises SelectorError."""
    program, domains = _compile(expression)
    described = dict(device)
    for field, domain in domains:  # a domain that the device lacks is an empty map, not an error
        by_domain = described[field]
        if isinstance(by_domain, Mapping) and domain not in by_domain:
            described[field] = {**by_domain, domain: {}}
    value = program.eval(data={"device": described})
    result = value.value()
    if not isinstance(result, bool):
        raise SelectorError(f"{expression}: {result}")
    return result


@functools.lru_cache(maxsize=1024)  # a cluster has few classes, and its claims few templates
def _compile(expression: str) -> tuple[cel.Expression, tuple[tuple[str, str], ...]]:
    try:
        return _environment().compile(expression), tuple(dict.fromkeys(_DOMAIN.findall(expression)))
    except (RuntimeError, ValueError) as error:
        raise SelectorError(f"{expression}: {error}") from None


@functools.cache
def _environment() -> cel.Env:
    """Return the environment of device selectors: `device`, and Kubernetes' functions of quantities and versions.

    Both types are strings here, and a version has three numbers, so that they can be told apart.
    """
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
    extensions = [ext_bindings.ExtBindings(), ext_optional.ExtOptional(), ext_strings.ExtStrings()]
    return cel.NewEnv(variables={"device": cel.Type.DYN}, extensions=extensions, functions=functions)


def _compare(left: str, right: str) -> int:
    """Return -1, 0 or 1 for two versions or two quantities."""
    first, second = _VERSION.fullmatch(left), _VERSION.fullmatch(right)
    if first is not None and second is not None:
        a, b = _order_version(first), _order_version(second)
        return (a > b) - (a < b)
    amount, other = quantity.milli(left), quantity.milli(right)
    return (amount > other) - (amount < other)


def _order_version(version: re.Match[str]) -> tuple[object, ...]:
    """Return the key that orders versions (semver.org, item 11): a pre-release comes before its release."""
    major, minor, patch, pre_release = version.groups()
    parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in (pre_release or "").split("."))
    return (int(major), int(minor), int(patch), not pre_release, parts)
