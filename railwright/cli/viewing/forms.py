"""The forms in which a view is answered: a table that fits, a wide one, JSON, YAML.

Owns their names and how a value becomes text of them.
"""

import sys
from typing import Any

import msgspec

from railwright.cli import output

NAMES = ("text", "wide", "json", "yaml")


def is_document(form: str) -> bool:
    """True for the forms that are for machines."""
    return form in ("json", "yaml")


def print_document(value: Any, form: str) -> None:
    """The value, as JSON or YAML, on stdout."""
    if form == "json":
        output.print_json(value)
        return
    import yaml  # noqa: PLC0415 - slow to import, and only this form needs it

    yaml.safe_dump(msgspec.to_builtins(value), sys.stdout, sort_keys=False, allow_unicode=True, width=110)
