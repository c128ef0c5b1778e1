"""Completes a command line in shells by argcomplete.

Completions come from the argument parsers. Reads no cluster, so that TAB is answered immediately. Names of files are
offered only where an argument is a file.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from argcomplete import completers, finders, shell_integration

from railwright.cli import options, output

_PROGRAMS = ("railwright", "kubectl-railwright")
_FILES = "FILE"  # metavar of arguments that are paths


def print_script(arguments: argparse.Namespace) -> int:
    """Print the shell script with which TAB completes the words of a command, and return 0."""
    sys.stdout.write(shell_integration.shellcode(_PROGRAMS, use_defaults=False, shell=arguments.shell))
    return output.OK


def print_completions(root: options.Parser) -> None:
    """Print the completions of the line in COMP_LINE, which the shell's script sets, and end the process."""
    finders.CompletionFinder()(root, always_complete_options=False, default_completer=_Files())


class _Files(completers.BaseCompleter):
    """Completes the names of files, for arguments that are files."""

    _find = completers.FilesCompleter()

    def __call__(self, *, prefix: str, action: argparse.Action, **_: Any) -> Sequence[str]:
        return self._find(prefix) if action.metavar == _FILES else []
