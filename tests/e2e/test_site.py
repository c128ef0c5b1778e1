"""The site itself: real nodes whose pods start, no way out, and nothing left when the run is killed."""

import asyncio
import os
import subprocess
import sys

from plane import waiting
from realnode import layout, pods, remains

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


async def test_both_nodes_offer_their_rails_and_gpus(real_site):
    nodes = await real_site.plane.api.list("Node")
    assert [node["metadata"]["name"] for node in nodes] == list(layout.NODES)
    for node in nodes:
        allocatable = node["status"]["allocatable"]
        offered = {name: amount for name, amount in allocatable.items() if "/" in name}
        shares = {f"nvidia.com/mlx5_{rail}": "16" for rail in range(layout.RAILS)}
        shares |= {f"spidernet.io/shared_cx6_rail{rail}": "16" for rail in range(layout.RAILS)}
        functions = {f"nvidia.com/ib{index}_sriov_vf": "1" for index in range(layout.FUNCTIONS)}
        assert offered == {"nvidia.com/gpu": "8"} | shares | functions


async def test_pods_of_two_nodes_reach_each_other_and_no_other_host(real_site, pod_namespace):
    addresses = {}
    for node in layout.NODES:
        pod = pods.describe(f"on-{node}", nodeName=node)
        await real_site.plane.api.create(pod, namespace=pod_namespace)
    for node in layout.NODES:
        ready = await pods.wait_ready(real_site.plane.api, pod_namespace, f"on-{node}")
        addresses[node] = ready["status"]["podIP"]
    for node, other in (layout.NODES, reversed(layout.NODES)):
        output = await real_site.execute(pod_namespace, f"on-{node}", "ping", "-c1", "-W5", addresses[other])
        assert "0% packet loss" in output
        outside = real_site.execute(pod_namespace, f"on-{node}", "ping", "-c1", "-W1", "192.0.2.1")
        assert "100% packet loss" in await _failure(outside)


async def test_site_has_no_link_and_no_route_to_anything_outside(real_site):
    links = real_site.network.run_ip("-o", "link").splitlines()
    names = {line.split(": ")[1].split("@")[0] for line in links}
    bridges = {layout.BRIDGE, *(f"rail{rail}" for rail in range(layout.RAILS))}
    assert names == {"lo", *bridges, *(f"{bridge}-{number}" for bridge in bridges for number in (1, 2))}
    assert "default" not in real_site.network.run_ip("route")


def test_a_killed_run_leaves_nothing(capable_machine, scratch_folder):
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

    async def nothing_left():
        assert not remains.list_processes(mine)
        assert not remains.list_cgroups(mine)
        assert not scratch_folder.exists()
        assert not remains.list_mounts(str(scratch_folder))
        assert len(started - remains.list_network_namespaces()) >= 3, "namespaces of the site and of both nodes"
        return True

    asyncio.run(waiting.wait(nothing_left, describe="everything of the killed run to be gone"))


async def _failure(action) -> str:
    try:
        return await action
    except AssertionError as error:
        return str(error)
