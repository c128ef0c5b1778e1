"""A gang that waits holds no devices, explains why, and is placed compactly once there is room."""

import asyncio
import re

from plane import gangs, waiting
from plane import site as sites

REQUESTS = "railwright_requests_total"
PATIENT = {"without": ("overcommit",), "arguments": {"httpTimeout": "60s"}}


async def release(plane, namespace: str, names: list[str]) -> None:
    await asyncio.gather(*(plane.api.delete("Pod", f"on-{name}", namespace, grace=0) for name in names))


async def list_conditions(volcano_gangs) -> dict[str, str]:
    """Return Volcano's reason for each waiting pod that has one."""
    messages = {}
    for pod in await volcano_gangs.pods("waits"):
        assert "nodeName" not in pod["spec"]
        said = [condition for condition in pod["status"].get("conditions", ()) if condition["type"] == "PodScheduled"]
        messages.update(
            (pod["metadata"]["name"], condition["message"]) for condition in said if condition["status"] == "False"
        )
    return messages


def between_sessions(act):
    """Return a hook that awaits `act()` once, during the last call of a Volcano session."""
    done = []

    async def hook(request):
        if request.path == "/volcano/session-close" and not done:
            done.append(True)
            await act()

    return hook


async def test_a_waiting_gang_holds_no_devices_and_starts_in_one_leaf(plane, nodes, namespace, volcano_gangs):
    a, b, c = await gangs.make_leaves(nodes, a=4, b=4, c=4)
    await gangs.hold_devices(plane.api, namespace, *a[1:], *b[2:], *c)  # three nodes are free, in two leaves
    extender = await volcano_gangs.install(**PATIENT)
    taken_back = await sites.read_metric(extender, REQUESTS, path="/volcano/deallocate")

    await volcano_gangs.create("waits", 4)
    await volcano_gangs.wait_unschedulable("waits", "4 tasks in gang unschedulable")

    async def are_explained() -> bool:
        messages = await list_conditions(volcano_gangs)
        assert len(messages) == 4, messages
        without_room = messages.pop("waits-worker-3")  # Volcano names any one of the resources that are missing
        assert re.search(r"Insufficient nvidia\.com/(gpu|mlx5_\d)\b", without_room), without_room
        for name, message in messages.items():  # each has a node it could have, and none of them takes it
            assert f"{namespace}/{name} can possibly be assigned to" in message, message
        return True

    await waiting.wait(are_explained, describe="conditions of all four pods")
    assert await sites.read_metric(extender, REQUESTS, path="/volcano/deallocate") > taken_back
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)

    # What it was tried on is free for whoever fits.
    assert gangs.list_runs(await volcano_gangs.run("passes", 2)) == ["b"]
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)
    await volcano_gangs.assert_unplaced("waits")

    async def make_room():
        for names in (a[1:], c[:3]):  # should Volcano see only part of it, that is too little for four
            await release(plane, namespace, names)

    volcano_gangs.site.proxy.hook = between_sessions(make_room)
    assert gangs.list_runs(await volcano_gangs.wait_running("waits", 4)) == ["a"]
    await sites.wait_metric(extender, "railwright_assumed_pods", 0)
