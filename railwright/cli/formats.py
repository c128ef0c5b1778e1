"""Prints documents: JSON and YAML."""

import io
import sys
from collections.abc import Iterable
from typing import Any

import msgspec
import yaml

DOCUMENTS = ("json", "yaml")  # output formats of documents; the others are for people


def print_json(value: Any) -> None:
    """Print a JSON value on stdout, indented."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_document(value: Any, form: str) -> None:
    """Print a value on stdout as one of DOCUMENTS."""
    if form == "json":
        print_json(value)
    else:
        sys.stdout.write(format_yaml(msgspec.to_builtins(value)))


def format_yaml(tree: Any, *, width: int = 110) -> str:
    """Return a tree as a YAML document without anchors; text of several lines is a block, not a quoted line."""
    return format_documents([tree], width=width)


def format_documents(trees: Iterable[Any], *, width: int = 110) -> str:
    """Return trees as YAML documents, see `format_yaml`."""
    documents = list(trees)
    text = io.StringIO()
    yaml.dump_all(
        documents,
        text,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        explicit_start=len(documents) > 1,
        width=width,
    )
    return text.getvalue()


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Write printable lines as a block. Anything else is quoted, with control characters escaped."""
    is_block = "\n" in value and all(line.isprintable() for line in value.splitlines())
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if is_block else None)


_Dumper.add_representer(str, _represent_text)
