"""Lists the commands that parse their own options, and calls commands.

A command that parses its own options starts without the imports of the others.
"""

import pkgutil
import signal
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple


class Program(NamedTuple):
    """A command with a help text and its function of the remaining words, as MODULE:FUNCTION."""

    summary: str
    main: str


PROGRAMS: Mapping[str, Program] = {
    "extender": Program("Run the scheduler extender.", "extender.__main__:main"),
    "preflight": Program(
        "Check that the rails of this container are ready for NCCL.", "railwright.preflight.__main__:main"
    ),
    "webhook": Program("Run the admission webhook.", "webhook.__main__:main"),
}


def call(function: str, argument: Any) -> int:
    """Import a command's MODULE:FUNCTION, call it with `argument` and return its exit code.

    SIGINT, which ends the process during the imports, raises KeyboardInterrupt in the command. During the imports it
    would sometimes be lost: Python discards what is raised in the callbacks of its import system.
    """
    command = pkgutil.resolve_name(function)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return int(command(argument))
