"""Writes CEL expressions that select devices by an attribute.

Each tests the attribute with has(): attributes are optional, and reading one that a device lacks is an error that
keeps kube-scheduler from scheduling the pod.
"""

import json
from collections.abc import Iterable

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
