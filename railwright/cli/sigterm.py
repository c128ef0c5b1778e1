"""Handles SIGTERM while a command starts.

The kernel ignores a signal for which PID 1 of a container has no handler. A pod deleted while its server still imports
libraries would run until kubelet kills it after the grace period. Other processes end by default.
"""

import os
import signal
from types import FrameType


def handle_as_pid_1() -> None:
    """Exit on SIGTERM if this process is PID 1. A server replaces the handler once it can drain."""
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)  # exit code as in shells; nothing needs cleanup yet
