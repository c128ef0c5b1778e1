"""Output formats of the commands that show a cluster: table, wide table, JSON, YAML."""

import sys
from typing import Any

import msgspec

from railwright.cli import output

NAMES = ("text", "wide", "json", "yaml")


def is_document(form: str) -> bool:
    """True for JSON and YAML."""
    return form in ("json", "yaml")


def print_document(value: Any, form: str) -> None:
    """Print a value on stdout as JSON or YAML."""
    if form == "json":
        output.print_json(value)
        return
    import yaml  # noqa: PLC0415 - slow to import, and only this format needs it

    yaml.safe_dump(msgspec.to_builtins(value), sys.stdout, sort_keys=False, allow_unicode=True, width=110)
