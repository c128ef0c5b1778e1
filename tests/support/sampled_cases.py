"""Runs a sample of the cases of each test: with `--cases N`, N at most, from the whole table."""

import itertools
import math

import pytest


def pytest_addoption(parser):
    parser.addoption("--cases", type=int, metavar="N", help="of each parametrised test, run N cases at most")


@pytest.hookimpl(trylast=True)  # of the tests that other options have selected
def pytest_collection_modifyitems(config, items):
    if count := config.getoption("cases"):
        groups = itertools.groupby(items, key=lambda item: item.nodeid.partition("[")[0])
        cases = [list(group) for _, group in groups]
        chosen = {item for group in cases for item in group[:: math.ceil(len(group) / count)]}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
