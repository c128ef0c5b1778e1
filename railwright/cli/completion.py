"""Completes a command line by argcomplete: for shells, and for kubectl.

Completions come from the argument parsers. Reads no cluster, so that TAB is answered at once. Names of files are
offered only where an argument is a file.
"""

import argparse
import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

from argcomplete import completers, finders, shell_integration

from railwright.cli import options, output

_PROGRAMS = ("railwright", "kubectl-railwright")
_FILES = ("FILE", "DIR")  # metavars of arguments that are paths
Build = Callable[[Sequence[str]], options.Parser]
"""Returns the parser of the program, with the command that the words name, or with all commands."""


def print_script(arguments: argparse.Namespace) -> int:
    """Print the script with which TAB in a shell calls `answer_shell`, and return 0."""
    sys.stdout.write(shell_integration.shellcode(_PROGRAMS, use_defaults=False, shell=arguments.shell))
    return output.OK


def answer_shell(build: Build) -> None:
    """Write the completions of the line in the environment variables of the shell's script, and end the process."""
    _complete(build(os.environ["COMP_LINE"].split()[1:2]), _Files())


def answer_kubectl(build: Build, words: Sequence[str]) -> int:
    """Print the completions of the last word as kubectl expects them of plugins (cobra's format), and return 0.

    The last line says whether kubectl completes names of files.
    """
    *before, last = words or [""]
    line = f"{shlex.join([_PROGRAMS[0], *before])} {last}"
    # argcomplete takes a line as shells give it; for fish it escapes nothing, and a description follows each candidate
    os.environ.update(
        _ARGCOMPLETE="1",
        _ARGCOMPLETE_SHELL="fish",
        _ARGCOMPLETE_IFS="\n",
        _ARGCOMPLETE_DFS="\t",
        COMP_LINE=line,
        COMP_POINT=str(len(line)),
    )
    files, written = _NoFiles(), io.StringIO()
    _complete(build(words[:1]), files, append_space=False, output_stream=written, exit_method=lambda _: None)
    option = f"{last.partition('=')[0]}=" if last.startswith("--") and "=" in last else ""  # kubectl adds it again
    candidates = [candidate.removeprefix(option).rstrip("\t") for candidate in written.getvalue().splitlines()]
    print(*candidates, ":0" if files.were_wanted else ":4", sep="\n")
    return output.OK


class _Files(completers.BaseCompleter):
    """Names of files, for arguments that are files."""

    _find = completers.FilesCompleter()

    def __call__(self, *, prefix: str, action: argparse.Action, **_: Any) -> Sequence[str]:
        return self._find(prefix) if action.metavar in _FILES else []


class _NoFiles(completers.BaseCompleter):
    """Offers no names, and records that the argument is a file."""

    were_wanted = False

    def __call__(self, *, action: argparse.Action, **_: Any) -> Sequence[str]:
        self.were_wanted |= action.metavar in _FILES
        return []


def _complete(root: options.Parser, values: completers.BaseCompleter, **settings: Any) -> None:
    """Write the completions. `values` has the values of arguments without choices."""
    finders.CompletionFinder()(root.argparser, always_complete_options=False, default_completer=values, **settings)
