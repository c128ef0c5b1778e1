"""Who may read why a pod was placed: whoever the real API server lets get pods in its namespace."""

import json

import pytest
from plane import waiting

POLICY = """
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
fabrics:
  ib:
    transport: infiniband
    rails: [{name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}]
    placement: {rails: required}
"""


def question(namespace: str) -> dict:
    container = {"name": "c", "resources": {"requests": {"nvidia.com/mlx5_0": "1"}}}
    metadata = {"name": "asked", "namespace": namespace, "uid": "u", "labels": {"railwright.io/fabric": "ib"}}
    pod = {"metadata": metadata, "spec": {"containers": [container]}}
    return {"Pod": pod, "Nodes": None, "NodeNames": ["gpu-0", "bare-0"]}


async def token(plane, namespace: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await plane.api.request("POST", path, body=body)
    return answer["status"]["token"]


async def test_an_explanation_is_for_those_who_may_get_the_pod(plane, namespace, nodes, site):
    await nodes.make("gpu-0", rails={"nvidia.com/mlx5_0": 1})
    await nodes.make("bare-0", rails={})
    await site.policy(POLICY)
    extender = await site.start_extender()
    url = f"http://127.0.0.1:{extender.port}"

    async def explain(authorization: str | None) -> tuple[int, dict]:
        headers = {"Authorization": authorization} if authorization else {}
        async with plane.session.get(f"{url}/explain/{namespace}/asked", headers=headers) as answer:
            return answer.status, json.loads(await answer.read())

    bearer = f"Bearer {await token(plane, namespace)}"
    assert (await explain(None))[0] == 401
    assert (await explain("Bearer nonsense"))[0] == 401
    status, refused = await explain(bearer)
    assert status == 403
    assert f"may not get pods in namespace {namespace}" in refused["error"]["reason"]

    await plane.kubectl(
        "create",
        "rolebinding",
        "reader",
        "--clusterrole=view",
        f"--serviceaccount={namespace}:default",
        "-n",
        namespace,
    )

    async def permitted():
        status, _ = await explain(bearer)
        assert status == 404, status
        return True

    await waiting.wait(permitted, describe="the role binding to be in force")
    async with plane.session.post(f"{url}/scheduler/filter", json=question(namespace)) as answer:
        assert (await answer.json())["NodeNames"] == ["gpu-0"]
    status, told = await explain(bearer)
    assert status == 200
    assert told["fabric"] == "ib"
    refused = {row["node"]: row.get("refused", "") for row in told["nodes"]}
    assert refused["gpu-0"] == ""
    assert "cannot give rail0" in refused["bare-0"]


@pytest.mark.parametrize("path", ["/explain/only-a-namespace", "/explain/a/b/c"])
async def test_other_explain_paths_do_not_exist(plane, site, path):
    await site.policy(POLICY)
    extender = await site.start_extender()
    async with plane.session.get(f"http://127.0.0.1:{extender.port}{path}") as answer:
        assert answer.status == 404
