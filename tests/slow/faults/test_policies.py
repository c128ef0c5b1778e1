"""Faults of the policy on the real API server: deleted, garbled."""

import asyncio
import time

import pytest
import pytest_asyncio
from plane import manifests, waiting
from plane import site as sites

MEBIBYTE = 2**20 - 2048  # what the API server takes of a ConfigMap, less what is around it here


def policy(marker: str, **rail: str) -> str:
    rails = [{"name": "rail0", "resource": "x.y/hca", "device": "mlx5_0", **rail}]
    return manifests.policy({"ib": manifests.fabric(rails, env={"MARKER": marker})})


POD = manifests.pod("p", "ib", schedulerName="nobody")


@pytest_asyncio.fixture(loop_scope="session")
async def installed(namespace, site):
    return await site.install(policy("1"), namespace)


@pytest.fixture
def admitted(plane, namespace):
    async def create_and_read() -> str:
        """Return the marker of the policy in a pod that is created."""
        created = await plane.api.create(POD, namespace=namespace, dry_run=True)
        env = {entry["name"]: entry.get("value") for entry in created["spec"]["containers"][0].get("env", [])}
        return env["MARKER"]

    return create_and_read


async def ready(plane, server) -> bool:
    async with plane.session.get(f"{server.ops_url}/readyz") as answer:
        return answer.status == 200


async def read_events(plane) -> str:
    """Return the messages of the Events on the ConfigMap."""
    events = await plane.api.list("Event", sites.NAMESPACE)
    return "\n".join(event["message"] for event in events if event["involvedObject"]["name"] == sites.CONFIGMAP)


async def test_20_a_deleted_policy_stays_in_force_and_is_reported(plane, installed, admitted):
    assert await admitted() == "1"
    await plane.api.delete("ConfigMap", sites.CONFIGMAP, sites.NAMESPACE)
    await sites.wait_metric(installed.webhook, "railwright_policy_valid", 0)
    for _ in range(20):
        assert await admitted() == "1"
    assert await ready(plane, installed.webhook)

    async def has_message() -> bool:
        return "the policy was deleted" in await read_events(plane)

    await waiting.wait(has_message, describe="an Event that the policy was deleted")
    await installed.policy(policy("2"))
    await sites.wait_metric(installed.webhook, "railwright_policy_valid", 1)
    assert await admitted() == "2"


GARBAGE = {  # text of the policy -> message
    "broken YAML": ("fabrics: {ib: [", "line 1"),
    "an unknown key": (policy("3", colour="red"), "fabrics.ib.rails[0].colour"),
    "a mebibyte": ("x" * MEBIBYTE, "has more than 131072 characters; shorten it"),
}


async def test_21_a_garbled_policy_is_refused_as_a_whole(plane, installed, admitted):
    waited = 0.0
    for name, (text, place) in GARBAGE.items():
        put = asyncio.create_task(installed.policy(text))

        async def has_message(place: str = place) -> bool:
            nonlocal waited
            asked = time.monotonic()
            assert await admitted() == "1", "pods meanwhile"
            waited = max(waited, time.monotonic() - asked)
            seen = await read_events(plane)
            assert place in seen, seen[-1000:]
            return True

        await waiting.wait(has_message, seconds=120, describe=f"an Event on the ConfigMap about {name}")
        await put
        assert await sites.metric(installed.webhook, "railwright_policy_valid") == 0, name
        assert await ready(plane, installed.webhook), name
    assert "the last valid policy stays in force" in await read_events(plane)
    described = await plane.kubectl("describe", "configmap", sites.CONFIGMAP, "-n", sites.NAMESPACE)
    assert "PolicyInvalid" in described
    await installed.policy(policy("4"))
    await sites.wait_metric(installed.webhook, "railwright_policy_valid", 1)
    assert await admitted() == "4"
    assert waited < 2, "reading it holds up nobody"
