"""Audit mode on the real API server, with the admission policies: nothing is changed, and nothing is denied."""

import json

import pytest_asyncio
from plane import site as sites

FABRIC, INJECTION = "railwright.io/fabric", "railwright.io/injection"


def policy(mode: str) -> str:
    return f"""
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
mode: {mode}
fabrics:
  ib:
    transport: infiniband
    rails:
    - {{name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}}
    security: {{capabilities: [IPC_LOCK]}}
"""


def pod(name: str, **annotations: str) -> dict:
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    keys = {f"railwright.io/{key}": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {FABRIC: "ib"}, "annotations": keys},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i", "resources": resources}]},
    }


def job(name: str) -> dict:
    template = pod(name)
    spec = {**template["spec"], "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {FABRIC: "ib"}},
        "spec": {"template": {"spec": spec}},
    }


@pytest_asyncio.fixture(loop_scope="session")
async def audited(site, namespace):
    await site.policy(policy("enforce"))  # the registration waits for a rejection
    await site.start_webhook()
    await site.register(namespace)
    await site.guard(namespace)
    await site.policy(policy("audit"))
    await sites.wait_metric(site.webhook, "railwright_policy_generation", 2)
    return site


async def test_audit_mode_changes_and_denies_nothing(plane, namespace, audited):
    created = await plane.api.create(pod("seen"), namespace=namespace)
    warnings = list(plane.api.warnings)
    assert any("WouldInject: fabric ib is in audit mode" in line for line in warnings), warnings
    annotations = created["metadata"]["annotations"]
    assert set(annotations) == {INJECTION}
    record = json.loads(annotations[INJECTION])
    assert (record["mode"], record["rails"]) == ("audit", ["rail0"])
    (container,) = created["spec"]["containers"]
    assert set(container["resources"]["limits"]) == {"nvidia.com/gpu"}
    assert "env" not in container
    assert "securityContext" not in container

    admitted = await plane.api.create(pod("wrong", rails="9"), namespace=namespace)
    assert any("WouldReject" in line and "(rails)" in line for line in plane.api.warnings), plane.api.warnings
    assert json.loads(admitted["metadata"]["annotations"][INJECTION])["rejected"] == "rails"

    written = job("train")
    made = await plane.api.create(written, namespace=namespace)
    assert FABRIC not in made["spec"]["template"]["metadata"].get("labels", {})
    assert "nvidia.com/mlx5_0" not in made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]

    counted = {"fabric": "ib", "role": "worker"}
    name = "railwright_webhook_injections_total"
    assert await sites.metric(audited.webhook, name, outcome="would-patch", **counted) == 1
    assert await sites.metric(audited.webhook, name, outcome="would-refuse", **counted) == 1

    await audited.policy(policy("enforce"))
    await sites.wait_metric(audited.webhook, "railwright_policy_generation", 3)
    enforced = await plane.api.create(pod("injected"), namespace=namespace)
    assert enforced["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/mlx5_0"] == "1"
    assert "mode" not in json.loads(enforced["metadata"]["annotations"][INJECTION])
