"""SIGTERM while a command starts.

The kernel drops a signal for which PID 1 of a container has no handler, so a pod that is deleted while its server still
imports its libraries would run on until kubelet kills it, a grace period later. Any other process ends by default.
"""

import os
import signal
from types import FrameType


def handle_as_pid_1() -> None:
    """Have SIGTERM end this process at once where it would be dropped. A server replaces this once it can drain."""
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)  # as a shell reports it; nothing has begun that would have to be finished
