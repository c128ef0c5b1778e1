"""Lists the programs that run in the cluster, and calls the function of any command.

A program parses its own options, so that it starts without the imports of other commands.
"""

import importlib
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

_Argument = TypeVar("_Argument")


PROGRAMS: Mapping[str, tuple[str, str]] = {  # the package and help text of each program
    "webhook": ("webhook", "Run the admission webhook."),
    "extender": ("extender", "Run the scheduler extender."),
    "preflight": (
        "railwright.preflight",
        "Find and check the rails of this container, and write them for NCCL and other libraries.",
    ),
}


def import_main(name: str) -> Callable[[Sequence[str]], int]:
    """Import the main function of a program, which takes the words after the program's name."""
    main: Callable[[Sequence[str]], int] = importlib.import_module(f"{PROGRAMS[name][0]}.__main__").main
    return main


def call_command(function: Callable[[_Argument], int], argument: _Argument) -> int:
    """Call the function of a command, in which SIGINT raises KeyboardInterrupt. Return its exit code.

    During the imports SIGINT ends the process instead: Python discards exceptions in its import callbacks.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return function(argument)
