"""Lists the commands that parse their own options, and calls commands.

A command that parses its own options starts without the imports of the others.
"""

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

Main = Callable[[Sequence[str]], int]
_Argument = TypeVar("_Argument")


class Program(NamedTuple):
    """A command with a help text. `load` imports its main function, which gets the remaining arguments."""

    summary: str
    load: Callable[[], Main]


def _load_webhook() -> Main:
    from webhook import __main__ as webhook

    return webhook.main


def _load_extender() -> Main:
    from extender import __main__ as extender

    return extender.main


def _load_preflight() -> Main:
    from railwright.preflight import __main__ as preflight

    return preflight.main


PROGRAMS: Mapping[str, Program] = {
    "extender": Program("Run the scheduler extender.", _load_extender),
    "preflight": Program("Check that the rails of this container are ready for NCCL.", _load_preflight),
    "webhook": Program("Run the admission webhook.", _load_webhook),
}


def call(function: Callable[[_Argument], int], argument: _Argument) -> int:
    """Call the function of a command, whose imports are done, and return its exit code.

    SIGINT, which ends the process during the imports, raises KeyboardInterrupt in the command. During the imports it
    would sometimes be lost: Python discards what is raised in the callbacks of its import system.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return function(argument)
