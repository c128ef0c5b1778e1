"""The webhook as it runs: a process over TLS, fed by files, its policy changed under it."""

import asyncio
import base64
import json
import time

import admitting
import aiohttp
import jsonpatch
import pytest_asyncio
import yaml

from railwright.cli.demo import scenario

POLICY = (admitting.EXAMPLES / "360-roce" / "policy.yaml").read_text()


@pytest_asyncio.fixture(loop_scope="session")
async def stage(tmp_path):
    async with scenario.start(tmp_path, ["--excluded-namespaces=infra"]) as opened:
        yield opened


async def ask(stage, path: str, body: bytes, seconds: int = 5) -> dict:
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"https://{stage.webhook.address}{path}?timeout={seconds}s",
            data=body,
            headers={"Content-Type": "application/json"},
            ssl=stage.trust,
        ) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return (await answer.json())["response"]


def apply_patch(tree: dict, response: dict) -> dict:
    return jsonpatch.apply_patch(tree, json.loads(base64.b64decode(response["patch"])))


async def test_a_pod_is_admitted_bound_and_patched_once(stage):
    tree = admitting.pod(label="default")
    tree["metadata"] |= {"uid": "u-1", "name": "rank-0"}
    after = apply_patch(tree, await ask(stage, "/mutate/pods", admitting.review(tree, namespace="prod")))
    assert "patch" not in await ask(stage, "/mutate/pods", admitting.review(after, namespace="prod"))
    await scenario.store(stage, [after])
    node = stage.nodes[0]["metadata"]["name"]
    binding = {
        "metadata": {"name": "rank-0", "namespace": "prod", "uid": "u-1"},
        "target": {"kind": "Node", "name": node},
    }
    body = admitting.review(binding, name="admission-bindings-admin.json", namespace="prod", uid="b-1")
    bound = apply_patch(binding, await ask(stage, "/mutate/bindings", body))
    assert json.loads(bound["metadata"]["annotations"]["railwright.io/placement"])["node"] == node


async def test_a_valid_policy_is_allowed_with_its_shortcomings(stage):
    document = yaml.safe_load(stage.policy_text)
    name, fabric = next((name, fabric) for name, fabric in document["fabrics"].items() if fabric.get("rails"))
    fabric["rails"][0]["network"] = "prod/nowhere"
    fabric["rails"][1]["resource"] = "example.com/nowhere"
    metadata = {"name": "railwright-policy", "namespace": "railwright-system"}
    request = {
        "uid": "p-1",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        **metadata,
        "operation": "UPDATE",
        "object": {"metadata": metadata, "data": {"policy.yaml": yaml.safe_dump(document)}},
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    response = await ask(stage, "/validate/policy", json.dumps(body).encode(), seconds=30)
    assert response["allowed"]
    warnings = [warning for warning in response["warnings"] if f": fabrics.{name}.rails: " in warning]
    assert any("NetworkAttachmentDefinition prod/nowhere does not exist" in warning for warning in warnings), response
    assert any("no node offers example.com/nowhere" in warning for warning in warnings), response


async def test_only_a_valid_policy_comes_into_force(stage):
    document = yaml.safe_load(stage.policy_text)
    fabric = document["fabrics"][document["defaultFabric"]]

    async def marker() -> str | None:
        tree = admitting.pod(label="default")
        after = apply_patch(tree, await ask(stage, "/mutate/pods", admitting.review(tree, namespace="prod")))
        return admitting.env(after).get("MARKER")

    for value in ("1", "2"):
        fabric["env"] = {"MARKER": value}
        (stage.folder / "policy.yaml").write_text(yaml.safe_dump(document))
        written = time.monotonic()
        while await marker() != value:
            assert time.monotonic() - written < 30, "live within a second; this machine may be busy"
            await asyncio.sleep(0.02)  # between two looks
    (stage.folder / "policy.yaml").write_text("fabrics: {")
    await scenario._wait_until(stage.webhook, "/metrics", lambda _, text: "railwright_policy_valid 0.0" in text)
    assert await marker() == "2"


async def test_an_uninjected_pod_is_counted_until_it_is_replaced(stage):
    tree = admitting.pod(label="default")
    tree["metadata"] |= {"uid": "u-1", "name": "rank-0"}
    fabric = yaml.safe_load(stage.policy_text)["defaultFabric"]
    static = admitting.pod(label="default", annotations={"kubernetes.io/config.mirror": "x"})
    static["metadata"] |= {"uid": "u-2", "name": "static"}
    excluded = admitting.pod(label="default")
    excluded["metadata"] |= {"uid": "u-3", "name": "rank-0", "namespace": "infra"}
    await scenario.store(stage, [static, excluded, tree])
    await scenario._wait_until(
        stage.webhook, "/metrics", lambda _, text: f'railwright_uninjected_pods{{fabric="{fabric}"}} 1.0' in text
    )
    after = apply_patch(tree, await ask(stage, "/mutate/pods", admitting.review(tree, namespace="prod")))
    await scenario.store(stage, [after])
    await scenario._wait_until(
        stage.webhook, "/metrics", lambda _, text: f'railwright_uninjected_pods{{fabric="{fabric}"}} 0.0' in text
    )
