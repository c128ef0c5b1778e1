"""Divides tests among runs of pytest: with `--shared-run FOLDER`, a file is run by the first run that comes to it.

pytest-xdist does this too, but sends five messages for each test, which takes longer than most unit tests.
"""

import fcntl
import functools
import itertools
import pathlib

import pytest

_FAILED = "cache/lastfailed"  # what `--lf` reads: a mapping of tests to true


def pytest_addoption(parser):
    parser.addoption(
        "--shared-run", type=pathlib.Path, metavar="FOLDER", help="empty at first; the runs claim files in it"
    )


def pytest_configure(config):
    if folder := config.getoption("shared_run"):
        config.pluginmanager.register(SharedRun(folder, getattr(config, "cache", None)))


class SharedRun:
    def __init__(self, folder, cache):
        self.folder, self.cache = folder, cache  # no cache with `-p no:cacheprovider`
        self.claim = functools.cache(self._claim)
        self.failed_before = self._read_failed()

    def _claim(self, path):
        """Return whether this run is the first to claim the file."""
        try:
            (self.folder / "claims").joinpath(*path.parts[1:]).mkdir(parents=True)
        except FileExistsError:
            return False
        return True

    def _read_failed(self):
        return set(self.cache.get(_FAILED, {})) if self.cache else set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        """Run the tests of claimed files. A test's fixtures end if the next test of this run needs others."""
        if session.config.option.collectonly:
            return None  # pytest's own loop runs nothing then
        own = (item for item in session.items if self.claim(item.path))
        for item, following in itertools.pairwise(itertools.chain(own, [None])):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self):
        """Add this run's failures to those of the runs that have ended; pytest would replace them."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            failed_in_others = self._read_failed()
            yield
            failed = self._read_failed()
            new, mended = failed - self.failed_before, self.failed_before - failed
            if self.cache:
                self.cache.set(_FAILED, dict.fromkeys(sorted((failed_in_others | new) - mended), True))
