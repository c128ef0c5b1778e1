"""Mode `warn` on the real API server: no pod is changed or denied, also by the admission policies."""

import pytest_asyncio
from plane import manifests
from plane import site as sites

FABRIC, INJECTION = "railwright.io/fabric", "railwright.io/injection"


def policy(mode: str) -> str:
    return manifests.policy({"ib": manifests.fabric(security={"capabilities": ["IPC_LOCK"]})}, mode=mode)


def pod(name: str, **annotations: str) -> dict:
    keys = {f"railwright.io/{key}": value for key, value in annotations.items()}
    return manifests.pod(name, "ib", annotations=keys, schedulerName="nobody")


@pytest_asyncio.fixture(loop_scope="session")
async def warning(site, namespace):
    await site.install(policy("enforce"), namespace)  # the registration waits for a rejection
    passing = {"metadata": {"labels": {"railwright.io/uninjected": "warn"}}}
    await site.plane.api.patch("Namespace", namespace, passing)
    await site.guard(namespace)
    await site.policy(policy("warn"))
    await sites.wait_policy(site.webhook, policy("warn"))
    return site


async def test_mode_warn_changes_and_denies_nothing(plane, namespace, warning):
    created = await plane.api.create(pod("seen"), namespace=namespace)
    warnings = list(plane.api.warnings)
    assert any("WouldInject: the policy is in mode warn" in line for line in warnings), warnings
    assert INJECTION not in created["metadata"].get("annotations", {})
    (container,) = created["spec"]["containers"]
    assert set(container["resources"]["limits"]) == {"nvidia.com/gpu"}
    assert "env" not in container
    assert "securityContext" not in container

    await plane.api.create(pod("wrong", rails="9"), namespace=namespace)
    assert any("WouldReject" in line and "(annotation)" in line for line in plane.api.warnings), plane.api.warnings

    job = manifests.workload("Job", manifests.pod(schedulerName="nobody"))
    job["metadata"]["labels"] = {FABRIC: "ib"}
    made = await plane.api.create(job, namespace=namespace)
    assert FABRIC not in made["spec"]["template"]["metadata"]["labels"]
    assert "nvidia.com/mlx5_0" not in made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]

    counted = {"fabric": "ib", "role": "worker"}
    name = "railwright_webhook_injections_total"
    assert await sites.metric(warning.webhook, name, outcome="would-patch", **counted) == 1
    assert await sites.metric(warning.webhook, name, outcome="would-refuse", **counted) == 1

    await warning.policy(policy("enforce"))
    await sites.wait_policy(warning.webhook, policy("enforce"))
    enforced = await plane.api.create(pod("injected"), namespace=namespace)
    assert enforced["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/mlx5_0"] == "1"
    assert INJECTION in enforced["metadata"]["annotations"]
