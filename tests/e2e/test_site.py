"""The site, which users start as root by `make demo-cluster`, has no route out, and leaves nothing when killed."""

import asyncio
import os
import subprocess
import sys

from plane import waiting
from realnode import layout, remains

# Starts the nodes of a site, without a control plane, and waits to be killed.
HOLD = """
import asyncio, pathlib, sys
from realnode import site

async def hold():
    held = site.Site(pathlib.Path(sys.argv[1]))
    await held.start_nodes()
    print("started", flush=True)
    await asyncio.Event().wait()

asyncio.run(hold())
"""


async def test_the_network_of_a_site_has_no_link_or_route_to_the_outside(real_site):
    links = real_site.network.run_ip("-o", "link").splitlines()
    names = {line.split(": ")[1].split("@")[0] for line in links}
    bridges = {layout.BRIDGE, *(f"rail{rail}" for rail in range(layout.RAILS))}
    assert names == {"lo", *bridges, *(f"{bridge}-{number}" for bridge in bridges for number in (1, 2))}
    assert "default" not in real_site.network.run_ip("route")


def test_a_killed_run_leaves_no_resources_behind(capable_machine, scratch_folder):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLD, str(scratch_folder)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "started\n"
        mine = f"railwright-{run.pid}-"
        assert remains.list_processes(mine), "the site's nodes have processes in their cgroups"
        assert remains.list_cgroups(mine)
        started = remains.list_network_namespaces()
        run.kill()

    async def is_removed():
        assert not remains.list_processes(mine)
        assert not remains.list_cgroups(mine)
        assert not scratch_folder.exists()
        assert not remains.list_mounts(str(scratch_folder))
        assert len(started - remains.list_network_namespaces()) >= 3, "namespaces of the site and of both nodes"
        return True

    asyncio.run(waiting.wait(is_removed, describe="everything of the killed run to be gone"))
