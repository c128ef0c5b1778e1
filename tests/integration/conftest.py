"""Configures the tests on a real control plane; the fixtures are in tests/support/plane_fixtures.py."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark also the tests that start nothing, such as those of the chart."""
    item.add_marker("plane")
