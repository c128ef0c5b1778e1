"""Lists the commands that parse their own options, and calls commands.

A command that parses its own options starts without the imports of the others.
"""

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

_Argument = TypeVar("_Argument")


PROGRAMS: Mapping[str, str] = {  # the help text of each
    "extender": "Run the scheduler extender.",
    "preflight": "Find and check the rails of this container, and write them for NCCL and other libraries.",
    "webhook": "Run the admission webhook.",
}


def load(name: str) -> Callable[[Sequence[str]], int]:
    """Import the main function of a program, which gets the remaining arguments."""
    match name:
        case "webhook":
            from webhook import __main__ as webhook

            return webhook.main
        case "extender":
            from extender import __main__ as extender

            return extender.main
        case _:
            from railwright.preflight import __main__ as preflight

            return preflight.main


def call(function: Callable[[_Argument], int], argument: _Argument) -> int:
    """Call the function of a command, whose imports are done, and return its exit code.

    SIGINT, which ends the process during the imports, raises KeyboardInterrupt in the command. During the imports it
    would sometimes be lost: Python discards what is raised in the callbacks of its import system.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return function(argument)
