"""Configures every test."""

import functools
import gc
import logging
import os

import hypothesis
import pytest
import yaml

pytest_plugins = [
    "api_stub",
    "child_processes",
    "plane_fixtures",
]  # of tests/support: needed in more than one folder

# A loaded machine is no defect of the code: no test fails for the time its examples take. `make test` tries the same
# few examples each time. HYPOTHESIS_PROFILE=explore, of `make test-slow`, looks for new ones.
_patient = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("repeatable", derandomize=True, max_examples=25, **_patient)
hypothesis.settings.register_profile("explore", max_examples=400, **_patient)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# libyaml reads a test's manifests ten times as fast. Where the loader matters, the product names it.
yaml.safe_load = functools.partial(yaml.load, Loader=yaml.CSafeLoader)
yaml.safe_load_all = functools.partial(yaml.load_all, Loader=yaml.CSafeLoader)


def pytest_collection_finish():
    """Exclude the objects that collection has made from later garbage collections."""
    gc.freeze()


_environment = {name: value for name, value in os.environ.items() if name.startswith("RAILWRIGHT_")}
_logging = pytest.StashKey[tuple[list[logging.Handler], int]]()


# Both as hooks: a fixture for each test takes longer than most unit tests.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    """Store the root logger's handlers and level, after the fixtures of the test and before the test."""
    root = logging.getLogger()
    item.stash[_logging] = (list(root.handlers), root.level)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    """Restore logging and environment after the test and its fixtures.

    A command in its process logs to a stderr that is then closed, and stores in the environment what it found.
    """
    try:
        return (yield)
    finally:
        root = logging.getLogger()
        root.handlers[:], level = item.stash.get(_logging, (root.handlers, root.level))
        root.setLevel(level)
        for name in [name for name in os.environ if name.startswith("RAILWRIGHT_")]:
            del os.environ[name]
        os.environ.update(_environment)
