"""Output of all commands: exit codes, `-o text|json`, coloured lines.

Text from files and clusters is printed as plain text, never as markup.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from typing import Any

OK, FINDINGS, UNUSABLE = 0, 1, 2  # docs/interface.md 6: success; findings; wrong usage or unreadable input


class UnreadableError(Exception):
    """Unreadable input or wrong usage. The message goes to stderr and the exit code is UNUSABLE."""


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `-o/--output` to a parser, or to each of its subcommands, if it is missing."""
    branches: list[Mapping[str, argparse.ArgumentParser]] = [
        action.choices
        for action in parser._actions  # noqa: SLF001 - argparse has no public API for subparsers
        if isinstance(action.choices, Mapping)
    ]
    for branch in branches:
        for child in branch.values():
            add_option(child)
    if not branches and "-o" not in parser._option_string_actions:  # noqa: SLF001 - nor for existing options
        parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="output format")


def read_text(path: str) -> str:
    """Return the text of a file, or of standard input for `-`. Raise UnreadableError."""
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode()
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib would change the path in messages
            return file.read().decode()
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UnreadableError(f"{path}: is not UTF-8 text") from None


def print_json(value: Any) -> None:
    """Print a JSON value on stdout, indented."""
    import msgspec  # noqa: PLC0415 - the preflight container starts through this module and must do so quickly

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_styled(*parts: tuple[str, str]) -> None:
    """Print a line of (text, rich style) parts on stdout, without styles if stdout is not a terminal."""
    from rich import console, text  # noqa: PLC0415 - slow to import, and only text answers need it

    line = text.Text.assemble(*((visible(part), style) for part, style in parts))
    console.Console(highlight=False, soft_wrap=True).print(line)


def visible(text: str) -> str:
    """Return text with control characters escaped: file names and content must not control the terminal."""
    return "".join([character if character.isprintable() else ascii(character)[1:-1] for character in text])


def offline(svg: str) -> str:
    """Return an SVG of rich without its web fonts, so that it needs no network."""
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
