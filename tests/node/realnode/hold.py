"""Starts the nodes of a site, without a control plane, and waits to be killed: for the test of that."""

import asyncio
import pathlib

from realnode import site


def main(folder: str) -> None:
    """Start it in `folder`, say so, and wait for ever."""
    asyncio.run(_hold(pathlib.Path(folder)))


async def _hold(folder: pathlib.Path) -> None:
    held = site.Site(folder)
    await held.start_nodes()
    print("started", flush=True)
    await asyncio.Event().wait()
