"""Process-wide settings that are made once, at a defined time."""

import asyncio
import gc

from railwright.serving import server


async def test_caches_are_frozen_once_they_are_full_and_not_before():
    full = False
    gc.unfreeze()
    waiting = asyncio.create_task(server.freeze_when(lambda: full))
    try:
        await asyncio.sleep(0)
        assert gc.get_freeze_count() == 0
        full = True
        async with asyncio.timeout(60):
            while not gc.get_freeze_count():  # noqa: ASYNC110 - the collector tells nobody
                await asyncio.sleep(0.05)
        assert not waiting.done()
    finally:
        waiting.cancel()
        gc.unfreeze()
