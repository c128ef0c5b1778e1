"""A headless Chromium for the tests of the dashboard's page, one for each file."""

import browser
import chromium
import pytest
import pytest_asyncio


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def chrome():
    try:
        async with browser.running() as running:
            yield running
    except chromium.MissingError as error:
        pytest.skip(str(error))
