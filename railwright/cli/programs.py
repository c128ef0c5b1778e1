"""Lists the commands that parse their own options, and calls commands.

Such a command starts without the imports of other commands.
"""

import importlib
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

_Argument = TypeVar("_Argument")


PROGRAMS: Mapping[str, tuple[str, str]] = {  # package and help text of each
    "webhook": ("webhook", "Run the admission webhook."),
    "extender": ("extender", "Run the scheduler extender."),
    "preflight": (
        "railwright.preflight",
        "Find and check the rails of this container, and write them for NCCL and other libraries.",
    ),
}


def load(name: str) -> Callable[[Sequence[str]], int]:
    """Import the main function of a program, which gets the remaining arguments."""
    main: Callable[[Sequence[str]], int] = importlib.import_module(f"{PROGRAMS[name][0]}.__main__").main
    return main


def call(function: Callable[[_Argument], int], argument: _Argument) -> int:
    """Call the imported function of a command, and return its exit code.

    SIGINT, which ends the process during the imports, raises KeyboardInterrupt in the command. During the imports the
    exception could be lost, because Python discards exceptions in its import callbacks.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return function(argument)
