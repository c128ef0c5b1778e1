"""Faults of the policy on the real API server: a deleted one, and an invalid one."""

import pytest
import pytest_asyncio
from plane import manifests, waiting
from plane import site as sites


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


async def assert_first_stays(plane, installed, admitted, event: str) -> None:
    """Wait until an Event on the ConfigMap says that the policy cannot be used; the first one is in force meanwhile."""

    async def is_told() -> bool:
        assert await admitted() == "1"
        events = await plane.api.list("Event", sites.NAMESPACE)
        messages = [seen["message"] for seen in events if seen["involvedObject"]["name"] == sites.CONFIGMAP]
        return any(event in message for message in messages)

    await waiting.wait(is_told, describe=f"an Event with {event!r}")
    assert await sites.read_metric(installed.webhook, "railwright_policy_valid") == 0
    async with plane.session.get(f"{installed.webhook.ops_url}/readyz") as answer:
        assert answer.status == 200


async def test_20_a_deleted_policy_stays_in_force_and_its_deletion_is_reported(plane, installed, admitted):
    await plane.api.delete("ConfigMap", sites.CONFIGMAP, sites.NAMESPACE)
    await assert_first_stays(plane, installed, admitted, "the policy was deleted")
    await installed.policy(policy("2"))
    await sites.wait_metric(installed.webhook, "railwright_policy_valid", 1)
    assert await admitted() == "2"


async def test_21_an_invalid_policy_is_reported_and_the_last_valid_one_stays_in_force(plane, installed, admitted):
    await installed.policy(policy("3", colour="red"))
    await assert_first_stays(plane, installed, admitted, "fabrics.ib.rails[0].colour")
    described = await plane.kubectl("describe", "configmap", sites.CONFIGMAP, "-n", sites.NAMESPACE)
    assert "PolicyInvalid" in described
    assert "the last valid policy stays in force" in described
