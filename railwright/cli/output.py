"""How every command answers: exit codes, `-o text|json`, coloured lines.

Owns the form of answers, not their content. Text from files and clusters is printed as text: never as markup.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from typing import Any

OK, FINDINGS, UNUSABLE = 0, 1, 2  # CONTRACT section 6: fine; findings; usage or unreadable input


class UnreadableError(Exception):
    """Input that cannot be had at all; the message goes to stderr and the exit code is UNUSABLE."""


def add_option(parser: argparse.ArgumentParser) -> None:
    """Give `-o/--output` to a parser, or to each of its sub-commands, where it is not there yet."""
    branches: list[Mapping[str, argparse.ArgumentParser]] = [
        action.choices
        for action in parser._actions  # noqa: SLF001 - argparse has no public way to walk its sub-parsers
        if isinstance(action.choices, Mapping)
    ]
    for branch in branches:
        for child in branch.values():
            add_option(child)
    if not branches and "-o" not in parser._option_string_actions:  # noqa: SLF001 - nor to ask for an option
        parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="form of the answer")


def read_text(path: str) -> str:
    """The text of a file, `-` for standard input; raises UnreadableError."""
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode()
        with open(path, "rb") as file:  # noqa: PTH123 - the path is shown as the user wrote it
            return file.read().decode()
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UnreadableError(f"{path}: is not UTF-8 text") from None


def print_json(value: Any) -> None:
    """One JSON value on stdout, indented for people and stable for tools."""
    import msgspec  # noqa: PLC0415 - the preflight container starts through this module and must do so quickly

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_styled(*parts: tuple[str, str]) -> None:
    """One line on stdout of (text, rich style) parts; plain where stdout is no terminal."""
    from rich import console, text  # noqa: PLC0415 - slow to import, and only text answers need it

    line = text.Text.assemble(*((visible(part), style) for part, style in parts))
    console.Console(highlight=False, soft_wrap=True).print(line)


def visible(text: str) -> str:
    """Control characters as escapes: a file's name or content must not drive the terminal."""
    return "".join([each if each.isprintable() else ascii(each)[1:-1] for each in text])


def offline(svg: str) -> str:
    """A picture of rich's without its web fonts: it is to be looked at without a network."""
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
