"""Plugin of every test run: child processes get default signal handlers, and no test leaves a process running."""

import contextlib
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

_shared: set[int] = set()  # processes of fixtures that outlive the test during which they were started
GRACE = 30.0  # seconds in which a process that had a signal may end, also on a busy machine


def pytest_configure() -> None:
    """Make SIGTERM end the run like Ctrl-C, with its fixtures, and start children with SIGINT's default action.

    If the run was started with SIGINT ignored (nohup, `&` in sh), it still does nothing on SIGINT. A program inherits
    an ignored signal, but not a handler.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, lambda *_: None)


def share(pid: int) -> None:
    """Exclude a process of a file's fixture, which ends it after the last test."""
    _shared.add(pid)


@pytest.fixture(autouse=True)
def _end_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the processes that the test and its fixtures left running, and fail the test."""
    failures, earlier = request.session.testsfailed, set(_find_running(os.getpid()))
    yield
    left = _list_left(earlier)
    is_failed = request.session.testsfailed > failures
    if left and not is_failed:
        _wait(lambda: not _list_left(earlier))
        left = _list_left(earlier)
    names = [_describe(pid) for pid in left]
    _end(left)
    if names and not is_failed:
        pytest.fail("the test has not ended what it started: " + "; ".join(names), pytrace=False)


def _list_left(earlier: set[int]) -> list[int]:
    """Return children that have not ended, without `earlier` ones and the control plane's, which later tests use."""
    harness = sys.modules.get("plane.processes")
    shared = _shared | (harness.list_running_pids() if harness else set())
    return [pid for pid in _find_running(os.getpid()) if pid not in earlier and pid not in shared]


def _find_running(parent: int) -> list[int]:
    """Return the children of a process that have not ended. Empty where /proc does not list children (macOS)."""
    pids = []
    with contextlib.suppress(OSError), os.scandir(f"/proc/{parent}/task") as threads:
        for thread in threads:  # twice a test, where a glob takes three times as long
            with contextlib.suppress(OSError):  # the thread has ended
                pids += map(int, pathlib.Path(thread.path, "children").read_text().split())
    return [pid for pid in pids if _is_running(pid)]


def _is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _describe(pid: int) -> str:
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        words = []
    return f"{pid} ({' '.join(words).strip()[:200]})"


def _end(pids: list[int]) -> None:
    """Kill processes and their descendants, and wait until they are gone."""
    family = list(pids)
    for pid in family:
        family += _find_running(pid)
    for pid in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _wait(lambda: not any(map(_is_running, family)))


def _wait(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GRACE
    while not is_done() and time.monotonic() < deadline:
        time.sleep(0.01)
