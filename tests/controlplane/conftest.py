"""Configures the tests on a real control plane; the fixtures are in tests/support/plane_fixtures.py."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark also the tests of the harness that start nothing."""
    item.add_marker("plane")
