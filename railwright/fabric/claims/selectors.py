"""Writes CEL expressions that select devices by an attribute, and lists the attributes that an expression reads.

Evaluates nothing. What is written tests the attribute with has(): attributes are optional, and reading one that a
device lacks is an error that keeps kube-scheduler from scheduling the pod.
"""

import functools
import json
import re
from collections.abc import Iterable

Reference = tuple[str, str, str]
"""What an expression reads of a device: attributes or capacity, domain, name."""

_DOMAIN = re.compile(r"""device\.(attributes|capacity)\[\s*["']([^"'\\]+)["']\s*\]""")
_REFERENCE = re.compile(_DOMAIN.pattern + r"""(?:\s*\.\s*|\s*\[\s*["'])([A-Za-z_]\w*)""")
_GUARD = re.compile(r"has\(\s*" + _REFERENCE.pattern + r"\s*\)")
_MEMBERSHIP = re.compile(r"""["']([A-Za-z_]\w*)["']\s+in\s+""" + _DOMAIN.pattern)
_DRIVER = re.compile(r"device\.driver\b")
_DEVICE = re.compile(r"\bdevice\b")


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


@functools.lru_cache(maxsize=1024)  # a cluster has few classes and rails
def find_inputs(expression: str) -> tuple[Reference, ...] | None:
    """Return what an expression reads of a device beside its driver. Return None if it may read anything else."""
    references = _REFERENCE.findall(expression)
    known = len(references) + len(_DRIVER.findall(expression))
    return tuple(dict.fromkeys(references)) if known == len(_DEVICE.findall(expression)) else None


def find_all_inputs(expressions: Iterable[str]) -> tuple[Reference, ...] | None:
    """Return what these expressions read of a device. Return None if one of them may read anything."""
    references: dict[Reference, None] = {}
    for expression in expressions:
        read = find_inputs(expression)
        if read is None:
            return None
        references.update(dict.fromkeys(read))
    return tuple(references)


_COMMENT = "//"


def select_values(attribute: str, values: Iterable[str | int]) -> str:
    """Return the expression that is true for devices whose attribute (domain/name) has one of the values."""
    path = refer_to(attribute)
    literals = [json.dumps(value, ensure_ascii=False) for value in dict.fromkeys(values)]
    test = f"{path} == {literals[0]}" if len(literals) == 1 else f"{path} in [{', '.join(literals)}]"
    return f"has({path}) && {test}"


def join(alternatives: Iterable[str]) -> str:
    """Return the expression that is true where one of these is. One with a comment may need the end of its line."""
    return " || ".join(
        f"({expression}\n)" if _COMMENT in expression else f"({expression})" for expression in alternatives
    )


def refer_to(attribute: str) -> str:
    """Return the attribute as CEL reads it. Its name is an identifier, its domain need not be one."""
    domain, _, name = attribute.rpartition("/")
    return f"device.attributes[{json.dumps(domain)}].{name}"
