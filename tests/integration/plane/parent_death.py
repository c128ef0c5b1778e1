"""Runs a program that cannot outlive its parent: `python parent_death.py PARENT_PID PROGRAM ARGUMENT...`.

Asks the kernel (Linux, prctl(2) PR_SET_PDEATHSIG) to kill this process when its parent dies, then becomes the program;
the request survives execve. So nothing is left running when pytest itself is killed. Elsewhere than on Linux it only
becomes the program.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Ask the kernel to end this process with its parent, then become the program."""
    parent, program, *arguments = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(parent):  # it died before the request was made
            sys.exit(1)
    os.execvp(program, [program, *arguments])  # noqa: S606 - becoming the program is what this is for


if __name__ == "__main__":
    main()
