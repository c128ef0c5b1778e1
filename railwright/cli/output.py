"""Input and output of all commands: exit codes, files, coloured lines.

Text from files and clusters is printed as plain text, never as markup. Imports the standard library only, because the
preflight of a container starts through this module.
"""

import os
import re
import sys
from collections.abc import Mapping

OK, FINDINGS, UNUSABLE = 0, 1, 2  # docs/interface.md 6: success; findings; wrong usage or unreadable input
_WEIGHTS = {"bold": "1", "dim": "2"}
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


class UnreadableError(Exception):
    """Unreadable input or wrong usage. The message goes to stderr and the exit code is UNUSABLE."""


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


def write_picture(path: str | os.PathLike[str], svg: str) -> None:
    """Write the SVG of --svg. Raise UnreadableError."""
    try:
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib is slow to import
            file.write(svg)
    except OSError as error:
        raise UnreadableError(f"--svg {path}: {error.strerror or error}; give a file that you may write") from None


def print_styled(*parts: tuple[str, str]) -> None:
    """Print a line of (text, style) parts on stdout; a style is words such as "bold red".

    Styles are left out unless stdout is a terminal or FORCE_COLOR is set; NO_COLOR leaves out colours.
    """
    codes = _get_codes()
    sys.stdout.write("".join([_paint(escape_controls(text), style, codes) for text, style in parts]) + "\n")


def is_animated() -> bool:
    """Return True if stdout is a terminal whose last line can be rewritten."""
    return sys.stdout.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown", "")


def _get_codes() -> Mapping[str, str]:
    """Return the SGR code of each word that may be used, by https://no-color.org and https://force-color.org."""
    is_terminal = sys.stdout.isatty() if (force := os.environ.get("FORCE_COLOR")) is None else bool(force)
    if not is_terminal or os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return {}
    return _WEIGHTS if os.environ.get("NO_COLOR") else {**_WEIGHTS, **_COLOURS}


def _paint(text: str, style: str, codes: Mapping[str, str]) -> str:
    chosen = [codes[word] for word in style.split() if word in codes]
    return f"\x1b[{';'.join(chosen)}m{text}\x1b[0m" if chosen and text else text


def escape_controls(text: str) -> str:
    """Return text with control characters escaped: file names and content must not control the terminal."""
    return "".join([character if character.isprintable() else ascii(character)[1:-1] for character in text])


def remove_web_fonts(svg: str) -> str:
    """Return an SVG of rich without its web fonts, so that it needs no network."""
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
