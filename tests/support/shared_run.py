"""Divides tests among runs of pytest: with `--shared-run FOLDER`, a file is run by the first run that comes to it.

pytest-xdist does this too, but sends five messages for each test, which takes longer than most unit tests.
"""

import functools
import itertools
import pathlib

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--shared-run", type=pathlib.Path, metavar="FOLDER", help="empty at first; the runs claim files in it"
    )


def pytest_configure(config):
    if folder := config.getoption("shared_run"):
        config.pluginmanager.register(SharedRun(folder))


class SharedRun:
    def __init__(self, folder):
        self.folder = folder
        self.claim = functools.cache(self._claim)

    def _claim(self, path):
        """Return whether this run is the first to claim the file."""
        try:
            (self.folder / str(path).replace("/", "-")).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        """Run the tests of claimed files. A test's fixtures end if the next test of this run needs others."""
        own = (item for item in session.items if self.claim(item.path))
        for item, following in itertools.pairwise(itertools.chain(own, [None])):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        return True
