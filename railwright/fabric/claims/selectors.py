"""Reads and writes simple CEL expressions: comparisons of a device's driver and attributes with constants, with &&.

Most DeviceClasses of drivers have only such expressions. Any other expression is not evaluated: the devices of its
DeviceClass do not count.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from railwright.fabric.claims import objects


class Term(NamedTuple):
    """Condition on a device: its attribute DOMAIN/NAME has this value, or exists if `value` is None.

    The name "" stands for the device's driver.
    """

    name: str
    value: str | int | bool | None = None  # None: any


Selection = Sequence[Term]
"""The terms of all CEL expressions of a DeviceClass, which selects the devices that meet every term."""

_TEXT = r"""(?:"[^"\\\r\n]*"|'[^'\\\r\n]*')"""
_TERM = re.compile(
    rf"device\.driver\s*==\s*(?P<driver>{_TEXT})"
    rf"|(?P<has>has\(\s*)?device\.attributes\[\s*(?P<domain>{_TEXT})\s*\]"
    rf"(?:\.(?P<field>[A-Za-z_][A-Za-z0-9_]*)|\[\s*(?P<key>{_TEXT})\s*\])"
    rf"(?(has)\s*\)|(?:\s*==\s*(?P<value>{_TEXT}|-?[0-9]{{1,18}}|true|false))?)"
)


def parse_terms(expressions: Iterable[str]) -> Selection | None:
    """Return the terms of all expressions; None if one of them is not of the simple form."""
    # An && inside a string is split too; its parts are no terms, so the expression counts as not simple.
    terms = [_read_term(term.strip()) for expression in expressions for term in expression.split("&&")]
    plain = [term for term in terms if term is not None]
    return plain if len(plain) == len(terms) else None


def selects_device(selection: Selection, device: objects.Device, driver: str) -> bool:
    """True if a device meets all terms. A device that lacks an attribute does not meet its term."""
    return all(_meets_term(term, device, driver) for term in selection)


def _meets_term(term: Term, device: objects.Device, driver: str) -> bool:
    if not term.name:
        return term.value == driver
    attribute = objects.find_attribute(device, driver, term.name)
    if attribute is None or term.value is None:
        return attribute is not None
    # a version equals no text in CEL, and Python has True == 1
    return attribute.version is None and type(attribute.value) is type(term.value) and attribute.value == term.value


def _read_term(text: str) -> Term | None:
    match = _TERM.fullmatch(text)
    if match is None:
        return None
    if match["driver"]:
        return Term("", match["driver"][1:-1])
    name = f"{match['domain'][1:-1]}/{match['field'] or match['key'][1:-1]}"
    if match["has"]:
        return Term(name)
    value = match["value"] or "true"  # without a comparison it is a boolean
    if value in {"true", "false"}:
        return Term(name, value == "true")
    return Term(name, value[1:-1] if value[0] in "\"'" else int(value))


def build_expression(attribute: str, values: Iterable[str | int]) -> str:
    """Return the CEL expression that is true for devices whose attribute DOMAIN/NAME has one of the values.

    The expression tests the attribute with has(), because reading an attribute that a device lacks is an error that
    keeps kube-scheduler from scheduling the pod.
    """
    domain, _, name = attribute.rpartition("/")
    path = f"device.attributes[{json.dumps(domain)}].{name}"
    literals = [json.dumps(value, ensure_ascii=False) for value in dict.fromkeys(values)]
    test = f"{path} == {literals[0]}" if len(literals) == 1 else f"{path} in [{', '.join(literals)}]"
    return f"has({path}) && {test}"
