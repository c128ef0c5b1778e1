"""Input and output of all commands: exit codes, files, coloured lines, and status lines.

Text from files and clusters is printed as plain text, never as markup. Imports the quick part of the standard library
only: the preflight of a container starts through this module, and the first status line precedes all other imports.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TextIO

TEXT, WIDE, JSON, YAML = "text", "wide", "json", "yaml"  # values of -o
OK, FINDINGS, UNUSABLE = 0, 1, 2  # docs/interface.md 6: success; findings; wrong usage or unreadable input
_WEIGHTS = {"bold": "1", "dim": "2"}
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


class UnreadableError(Exception):
    """Raised for unreadable input or wrong usage. The message goes to stderr and the exit code is UNUSABLE."""


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


def print_styled(*parts: tuple[str, str]) -> None:
    """Print a line of (text, style) parts on stdout; a style is words such as "bold red".

    Styles are left out unless stdout is a terminal; NO_COLOR leaves out colours.
    """
    codes, line = _get_style_codes(), ""
    for text, style in parts:
        chosen = [codes[word] for word in style.split() if word in codes]
        plain = escape_controls(text)
        line += f"\x1b[{';'.join(chosen)}m{plain}\x1b[0m" if chosen and plain else plain
    sys.stdout.write(f"{line}\n")


def print_change(line: str) -> None:
    """Print a line about a change to the cluster. Ignore a closed pipe or a full disk, so that the changes go on."""
    try:
        print(line, flush=True)
    except OSError:
        discard_stream(sys.stdout)


def discard_stream(stream: TextIO) -> None:
    """Redirect a standard stream, and the text in its buffer, to /dev/null."""
    with contextlib.suppress(OSError, ValueError):  # the stream has no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_note(text: str) -> None:
    """Print a line on stderr that is no result, such as `railwright: you may not list jobs`."""
    print(f"railwright: {escape_controls(text)}", file=sys.stderr, flush=True)


def is_animated(stream: TextIO | None = None) -> bool:
    """Return True if a stream, by default stdout, is a terminal whose last line can be rewritten."""
    return (stream or sys.stdout).isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown", "")


def _get_style_codes() -> Mapping[str, str]:
    """Return the SGR code of each style that the terminal and NO_COLOR allow (https://no-color.org)."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return {}
    return _WEIGHTS if os.environ.get("NO_COLOR") else {**_WEIGHTS, **_COLOURS}


def escape_controls(text: str) -> str:
    """Return text with control characters escaped: file names and content must not control the terminal."""
    if text.isprintable():
        return text
    return "".join([character if character.isprintable() else ascii(character)[1:-1] for character in text])


# --- a line on stderr while a command works --------------------------------------------------------------

_CLEAR = "\r\x1b[K"  # to the first column, erase the line


def show_status(text: str) -> None:
    """Replace the status line on stderr, cut at the width of the terminal: a wrapped line could not be erased."""
    if is_animated(sys.stderr):
        columns = 0  # unknown
        with contextlib.suppress(OSError):
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
        sys.stderr.write(f"{_CLEAR}{f'{escape_controls(text)}…'[: columns or None]}")
        sys.stderr.flush()


def clear_status() -> None:
    """Erase the status line. Must be called before anything else is printed."""
    if is_animated(sys.stderr):
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()


@contextlib.contextmanager
def show_progress(description: str, *, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Show a status line until the end of the context. Yield a function that counts a step, of `total` if known."""
    done = 0
    show_status(description)

    def advance() -> None:
        nonlocal done
        done += 1
        show_status(f"{description}: {done}" if total is None else f"{description}: {done} of {total}")

    try:
        yield advance
    finally:
        clear_status()


# --- lines of styled parts -------------------------------------------------------------------------------

Line = tuple[tuple[str, str], ...]
"""Parts of (text, style); a style is words such as "bold red"."""


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines and flush them, so that the reader of a pipe gets them immediately."""
    for line in lines:
        print_styled(*line)
    sys.stdout.flush()
