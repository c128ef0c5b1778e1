"""What may come next on a command line, read off the parsers themselves: one answer for every shell and for kubectl.

Owns that walk. Knows no shell, reads no cluster and no file, so that a TAB is answered at once. Where a file is wanted
the shell's own completion of files is asked for.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

_FILES = ("FILE", "DIR")  # metavars of arguments that are paths


class Answer(NamedTuple):
    """Candidates, each with its help; `files`: names of files are welcome too."""

    candidates: Sequence[tuple[str, str]]
    files: bool = False


def of(root: argparse.ArgumentParser, words: Sequence[str]) -> Answer:
    """What the last of `words`, which may be empty, can become; the program's own name is not among them."""
    *before, last = _joined(words) or [""]
    parser, open_option = _walked(root, before)
    if open_option is not None:
        return _values(open_option, last)
    if last.startswith("--") and "=" in last:
        name, _, value = last.partition("=")
        option = _options(parser).get(name)
        return Answer(()) if option is None else _values(option, value)
    if last.startswith("-"):
        found = {name: action.help or "" for name, action in _options(parser).items() if name.startswith(last)}
        return Answer([(name, _plain(text)) for name, text in sorted(found.items()) if text != argparse.SUPPRESS])
    return _words(parser, last)


def _joined(words: Sequence[str]) -> list[str]:
    """Bash splits --option=value at the sign: `--option`, `=`, `value` are one again."""
    found: list[str] = []
    for word in words:
        if found and (word == "=" or found[-1].endswith("=")) and found[-1].startswith("--"):
            found[-1] += word
        else:
            found.append(word)
    return found


def _walked(
    root: argparse.ArgumentParser, words: Sequence[str]
) -> tuple[argparse.ArgumentParser, argparse.Action | None]:
    """The parser these words lead to, and the option that still wants its value."""
    parser, waiting = root, None
    for word in words:
        if waiting is not None:
            waiting = None
        elif word.startswith("-"):
            option = _options(parser).get(word)
            waiting = option if option is not None and option.nargs != 0 else None
        else:
            parser = _branches(parser).get(word, parser)
    return parser, waiting


def _words(parser: argparse.ArgumentParser, last: str) -> Answer:
    branches = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001 - argparse has no public way to walk its parsers
    if branches:
        helps = {choice.dest: choice.help or "" for action in branches for choice in action._choices_actions}  # noqa: SLF001 - the same
        names = [name for name in _branches(parser) if name.startswith(last)]
        return Answer([(name, _plain(helps.get(name, ""))) for name in names])
    positionals = [action for action in parser._actions if not action.option_strings]  # noqa: SLF001 - the same
    found = [each for action in positionals for each in _values(action, last).candidates]
    return Answer(found, files=any(_values(action, last).files for action in positionals))


def _values(action: argparse.Action, last: str) -> Answer:
    if action.choices is not None:
        return Answer([(str(each), "") for each in action.choices if str(each).startswith(last)])
    return Answer((), files=action.metavar in _FILES)


def _branches(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - the same
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the same
            found |= action.choices
    return found


def _options(parser: argparse.ArgumentParser) -> Mapping[str, argparse.Action]:
    return parser._option_string_actions  # noqa: SLF001 - the same


def _plain(text: str) -> str:
    """The first clause of a help text: shells show one line."""
    return text.partition(";")[0].partition(" (default")[0].replace("\t", " ").replace("%%", "%")


def lines(answer: Answer) -> Iterator[str]:
    """The form that kubectl asks of plugins (cobra's): a candidate a line, then what to do about files."""
    for value, text in answer.candidates:
        yield f"{value}\t{text}" if text else value
    yield ":0" if answer.files else ":4"
