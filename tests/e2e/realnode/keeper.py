"""Holds a site's network namespace and cleans up after its end: `python -m realnode.keeper FOLDER CGROUP...`.

The keeper is started in the namespace and reads standard input until the test run closes it or dies. Then it waits
until no process is left in the cgroups, and removes them and the folder. If it has read the word `ended`, the run was
orderly, and only the nodes' part of the folder is removed. Standard library only.
"""

import pathlib
import shutil
import signal
import sys
import time

from realnode import cgroups

NODES = "nodes"  # folder of what is large
_SECONDS = 20  # processes of a node are killed by the kernel at once; on a busy machine that takes a while


def main() -> None:
    """Wait for the end of the run, then remove its cgroups and folder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder, *names = sys.argv[1:]
    print("ready", flush=True)
    is_orderly = b"ended" in sys.stdin.buffer.read()
    deadline = time.monotonic() + _SECONDS
    while names and time.monotonic() < deadline:
        names = [name for name in names if not cgroups.remove(name)]
        time.sleep(0.05)
    shutil.rmtree(pathlib.Path(folder) / NODES if is_orderly else folder, ignore_errors=True)


if __name__ == "__main__":
    main()
