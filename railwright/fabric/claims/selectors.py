"""Reads and writes plain CEL expressions: comparisons of a device's driver and attributes with constants, joined by &&.

DeviceClasses of drivers, rails of the policy and requests of claims mostly consist of these. Nothing else is evaluated:
a device counts only where all expressions about it are plain.

What is written tests the attribute with has(): attributes are optional, and reading one that a device lacks is an
error that keeps kube-scheduler from scheduling the pod.
"""

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence

from railwright.fabric.claims import objects

# --- reading ----------------------------------------------------------------------------------------------

DRIVER = "driver"
"""Key of a selection that stands for the device's driver. All others are attributes, as DOMAIN/NAME."""

Values = frozenset[tuple[type, str | int | bool]]
"""Constants with their types: Python has True == 1, CEL has not."""
Selection = Mapping[str, Values | None]
"""What plain expressions demand: one of the values of each attribute. None: the attribute exists, with any value."""

_TEXT = r"""(?:"[^"\\\r\n]*"|'[^'\\\r\n]*')"""
_CONSTANT = rf"(?:{_TEXT}|-?[0-9]{{1,18}}|true|false)"
_FIELD = rf"(?:\.(?P<field>[A-Za-z_][A-Za-z0-9_]*)|\[\s*(?P<key>{_TEXT})\s*\])"
_ATTRIBUTE = rf"device\.attributes\[\s*(?P<domain>{_TEXT})\s*\]{_FIELD}"
_EQUALITY = rf"\s*==\s*(?P<value>{_CONSTANT})"
_MEMBERSHIP = rf"\s+in\s*\[\s*(?P<list>{_CONSTANT}(?:\s*,\s*{_CONSTANT})*)\s*\]"
_TERMS = [
    re.compile(pattern)
    for pattern in (
        rf"(?P<driver>device\.driver){_EQUALITY}",
        rf"{_ATTRIBUTE}(?:{_EQUALITY}|{_MEMBERSHIP})?",  # without a comparison it is a boolean
        rf"(?P<has>has)\(\s*{_ATTRIBUTE}\s*\)",
        rf"(?P<key>{_TEXT})\s+(?P<has>in)\s+device\.attributes\[\s*(?P<domain>{_TEXT})\s*\]",
    )
]
_PIECE = re.compile(rf"{_TEXT}|&&|[^\"'&]+|.", re.DOTALL)
_LISTED = re.compile(_CONSTANT)


@functools.lru_cache(maxsize=2048)  # the expressions of classes and policy, and of recent claims
def read(expressions: tuple[str, ...]) -> Selection | None:
    """Return what expressions demand that must all be true. Return None if one of them is not plain."""
    selection: dict[str, Values | None] = {}
    for term in [term for expression in expressions for term in _split(expression)]:
        parsed = _read_term(term)
        if parsed is None:
            return None
        name, values = parsed
        known = selection.get(name)
        selection[name] = known if values is None else values if known is None else known & values
    return selection


def matches(selection: Selection, device: objects.Device, driver: str) -> bool:
    """True if a device is selected. One that lacks an attribute is not: kube-scheduler gives it to no pod either."""
    for name, values in selection.items():
        if name == DRIVER:
            found: str | int | bool | None = driver
        else:
            attribute = objects.find_attribute(device, driver, *name.rsplit("/", 1))
            if attribute is None or (values is not None and attribute.version is not None):
                return False  # a version equals no text in CEL
            found = attribute.value
        if values is not None and (type(found), found) not in values:
            return False
    return True


def is_within(selection: Selection, other: Selection) -> bool:
    """True if each device that `selection` selects is selected by `other`, too."""
    for name, values in other.items():
        own = selection.get(name)
        if name not in selection or (values is not None and (own is None or not own <= values)):
            return False
    return True


def _split(expression: str) -> Iterable[str]:
    """Yield the terms that && joins, without spaces around them."""
    term = ""
    for piece in _PIECE.findall(expression):
        if piece == "&&":
            yield term.strip()
            term = ""
        else:
            term += piece
    yield term.strip()


def _read_term(term: str) -> tuple[str, Values | None] | None:
    """Return the attribute of a term and the values that it may have. Return None if the term is not plain."""
    match = next((match for pattern in _TERMS if (match := pattern.fullmatch(term))), None)
    if match is None:
        return None
    parts = match.groupdict()
    name = DRIVER if parts.get("driver") else f"{parts['domain'][1:-1]}/{parts.get('field') or parts['key'][1:-1]}"
    if parts.get("has"):
        return name, None
    constants = _LISTED.findall(parts.get("list") or "") or [parts["value"] or "true"]
    return name, frozenset((type(value), value) for value in map(_read_constant, constants))


def _read_constant(text: str) -> str | int | bool:
    if text in {"true", "false"}:
        return text == "true"
    return text[1:-1] if text[0] in "\"'" else int(text)


# --- attributes that an expression names ------------------------------------------------------------------

_DOMAIN = re.compile(r"""device\.(attributes|capacity)\[\s*["']([^"'\\]+)["']\s*\]""")
_REFERENCE = re.compile(_DOMAIN.pattern + r"""(?:\s*\.\s*|\s*\[\s*["'])([A-Za-z_]\w*)""")
_GUARD = re.compile(r"has\(\s*" + _REFERENCE.pattern + r"\s*\)")
_MEMBER = re.compile(r"""["']([A-Za-z_]\w*)["']\s+in\s+""" + _DOMAIN.pattern)


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
    guarded |= {f"{domain}/{name}" for name, _, domain in _MEMBER.findall(expression)}
    return tuple(name for name in list_references(expression) if name not in guarded)


# --- writing ----------------------------------------------------------------------------------------------

_COMMENT = "//"


def select_values(attribute: str, values: Iterable[str | int]) -> str:
    """Return the expression that is true for devices whose attribute (domain/name) has one of the values."""
    path = refer_to(attribute)
    literals = [json.dumps(value, ensure_ascii=False) for value in dict.fromkeys(values)]
    test = f"{path} == {literals[0]}" if len(literals) == 1 else f"{path} in [{', '.join(literals)}]"
    return f"has({path}) && {test}"


def join(alternatives: Sequence[str]) -> str:
    """Return the expression that is true where one of these is. One with a comment may need the end of its line."""
    return " || ".join(
        f"({expression}\n)" if _COMMENT in expression else f"({expression})" for expression in alternatives
    )


def refer_to(attribute: str) -> str:
    """Return the attribute as CEL reads it. Its name is an identifier, its domain need not be one."""
    domain, _, name = attribute.rpartition("/")
    return f"device.attributes[{json.dumps(domain)}].{name}"
