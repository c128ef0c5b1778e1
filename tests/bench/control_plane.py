"""A control plane for one benchmark, and the extenders that its schedulers call."""

import contextlib
import pathlib
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import NamedTuple

import machine
from plane import plane as planes
from plane import site as sites

HERE = pathlib.Path(__file__).resolve().parent


class Extenders(NamedTuple):
    """The ports and processes of extenders by name: railwright, and `null`, which answers at once."""

    ports: dict[str, int]
    pids: dict[str, int]


@contextlib.asynccontextmanager
async def run_control_plane() -> AsyncIterator[planes.Plane]:
    """Run a control plane in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="railwright-bench-") as folder:
        async with planes.run(pathlib.Path(folder), planes.Plane) as plane:
            yield plane


@contextlib.asynccontextmanager
async def run_extenders(plane: planes.Plane) -> AsyncIterator[Extenders]:
    """Run both extenders beside each other."""
    site = sites.Site(plane)
    await site.prepare()
    await site.policy((HERE / "placement.yaml").read_text())
    railwright = await site.start_extender()
    with machine.start_process([sys.executable, str(HERE / "null_extender.py")], None) as null:
        ports = {"null": machine.read_port(null), "railwright": railwright.port}
        yield Extenders(ports, {"null": null.pid, "railwright": railwright.process.pid})
