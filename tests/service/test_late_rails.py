"""Rails of claims that are chosen at binding: `explain pod` shows those that the claims hold."""

import asyncio
import json

import aiohttp
import dashboard_servers
import devices
import late_rails

from railwright.cli import __main__ as command_line
from railwright.fabric import names

FIRST = late_rails.TEXT["p-0"]
LINE = f"rails and devices of its claims: {FIRST}"


async def test_the_extender_reports_claimed_rails(tmp_path, capsys):
    late_rails.write(tmp_path)
    async with dashboard_servers.snapshot_extender(tmp_path) as (url, _):
        body = {"Pod": late_rails.build_pod("p-0"), "Nodes": None, "NodeNames": ["n1", "n2"]}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/scheduler/prioritize", json=body) as answer,
        ):
            assert answer.status == 200, await answer.text()
        words = ["explain", "pod/p-0", "-n", "train", "--extender", url]
        assert await asyncio.to_thread(command_line.main, words) == 0
        assert LINE in capsys.readouterr().out.splitlines()
        assert await asyncio.to_thread(command_line.main, [*words, "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["devices"] == [
            {"rail": "rail1", "device": devices.RDMA_DEVICES[1]},
            {"rail": "rail3", "device": devices.RDMA_DEVICES[3]},
        ]


async def test_the_placement_annotation_has_claimed_rails(cluster, run):
    pod = late_rails.build_pod("p-0", "n1")
    held = [
        {"rail": f"rail{rail}", "claim": "railwright", "request": f"nic{number}", "device": "pci", "rdmaDevice": device}
        for number, (rail, device) in enumerate([(1, devices.RDMA_DEVICES[1]), (3, devices.RDMA_DEVICES[3])])
    ]
    placement = {"node": "n1", "rails": ["rail1", "rail3"], "domains": ["a"], "devices": held}
    pod["metadata"]["annotations"][names.PLACEMENT] = json.dumps(placement)
    cluster.keep("/api/v1/namespaces/train/pods/p-0", pod)
    cluster.lists["/api/v1/namespaces/train/events"] = []
    cluster.fault = lambda request: 404 if "/proxy/" in request.path else None
    code, out, err = await run("explain", "pod/p-0", "-n", "train")
    assert code == 0, err
    assert "fabric roce, role worker, rails rail1, rail3" in out.splitlines()[0]
    assert LINE in out.splitlines()
