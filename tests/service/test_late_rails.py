"""Rails of claims that are chosen at binding: the extender reports those of the allocated claims."""

import aiohttp
import dashboard_servers
import devices
import late_rails


async def test_the_extender_explains_which_devices_the_claims_of_a_pod_hold(tmp_path):
    late_rails.write(tmp_path)
    async with dashboard_servers.snapshot_extender(tmp_path) as (url, _):
        body = {"Pod": late_rails.build_pod("p-0"), "Nodes": None, "NodeNames": ["n1", "n2"]}
        async with aiohttp.ClientSession() as session, session.post(f"{url}/scheduler/prioritize", json=body) as answer:
            assert answer.status == 200, await answer.text()
        async with aiohttp.ClientSession() as session, session.get(f"{url}/explain/train/p-0") as answer:
            explanation = await answer.json()
    assert explanation["devices"] == [
        {"rail": "rail1", "device": devices.RDMA_DEVICES[1]},
        {"rail": "rail3", "device": devices.RDMA_DEVICES[3]},
    ]
