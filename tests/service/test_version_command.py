"""`railwright version` shows the version of the command, and those in the cluster if they can be read.

Unusable clusters: test_cluster_faults.py.
"""

import asyncio
import hashlib
import json

import api_stub
import pytest_asyncio
import varied_clusters
from aiohttp import web

from railwright.cli import __main__ as railwright
from railwright.fabric import version

DEPLOYMENTS = "/apis/apps/v1/namespaces/railwright-system/deployments"
POLICY = "/api/v1/namespaces/railwright-system/configmaps/railwright-policy"
RESOURCE = "/apis/railwright.io/v1alpha1/namespaces/railwright-system/fabricpolicies/railwright-policy"
CLIENT = f"client    {version.VERSION}\n"


def deployment(server: str, image: str) -> dict:
    containers = [{"name": "mesh-proxy", "image": "mesh:1"}, {"name": server, "image": image}]
    return {"metadata": {"name": "server"}, "spec": {"template": {"spec": {"containers": containers}}}}


@pytest_asyncio.fixture
async def cluster(tmp_path):
    """Yield a kubeconfig and the objects of its server by path."""
    objects = {
        f"{DEPLOYMENTS}/railwright-webhook": deployment("webhook", "registry/railwright:9.1.0"),
        f"{DEPLOYMENTS}/railwright-extender": deployment("extender", "registry/railwright:9.1.1"),
        POLICY: {"metadata": {"name": "railwright-policy"}, "data": {"policy.yaml": varied_clusters.POLICY}},
    }

    async def answer(request):
        if objects.get(request.path) == 403:
            return api_stub.refuse(403, "Forbidden", "the right is missing")
        if request.path in objects:
            return web.json_response(objects[request.path])
        return api_stub.refuse(404, "NotFound", f"{request.path} not found")

    async with api_stub.serve(answer) as port:
        yield api_stub.kubeconfig(tmp_path, port), objects


async def run(capsys, *arguments):
    code = await asyncio.to_thread(railwright.main, ["version", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


async def test_version_shows_the_images_of_the_servers_and_the_digest_of_the_policy(cluster, capsys):
    digest = f"sha256:{hashlib.sha256(varied_clusters.POLICY.encode()).hexdigest()}"
    code, out, err = await run(capsys, "--kubeconfig", cluster[0])
    lines = (
        "webhook   registry/railwright:9.1.0",
        "extender  registry/railwright:9.1.1",
        f"policy    {digest} (ConfigMap railwright-system/railwright-policy)",
    )
    assert (code, out, err) == (0, CLIENT + "\n".join(lines) + "\n", "")
    _, out, _ = await run(capsys, "--kubeconfig", cluster[0], "-o", "json")
    assert json.loads(out) == {
        "client": version.VERSION,
        "webhook": "registry/railwright:9.1.0",
        "extender": "registry/railwright:9.1.1",
        "policy": digest,
        "policy_object": {"kind": "ConfigMap", "namespace": "railwright-system", "name": "railwright-policy"},
    }


async def test_version_names_the_fabric_policy_in_force(cluster, capsys):
    kubeconfig, objects = cluster
    objects[RESOURCE] = {"metadata": {"name": "railwright-policy"}, "spec": {"fabrics": {"f": {"transport": "tcp"}}}}
    _, out, _ = await run(capsys, "--kubeconfig", kubeconfig)
    assert out.endswith(" (FabricPolicy railwright-system/railwright-policy)\n")
    _, out, _ = await run(capsys, "--kubeconfig", kubeconfig, "-o", "json")
    assert json.loads(out)["policy_object"]["kind"] == "FabricPolicy"


async def test_a_missing_right_is_named(cluster, capsys):
    kubeconfig, objects = cluster
    objects[RESOURCE] = 403
    code, out, err = await run(capsys, "--kubeconfig", kubeconfig)
    assert (code, out) == (2, CLIENT)
    assert "kubectl auth can-i get fabricpolicies.railwright.io/railwright-policy -n railwright-system" in err
    assert (
        "The right to get ConfigMap railwright-system/railwright-policy is not enough: a FabricPolicy of this name "
        "would override it"
    ) in err


async def test_missing_deployments_are_shown_as_not_installed(cluster, capsys):
    kubeconfig, objects = cluster
    objects.clear()
    code, out, _ = await run(capsys, "--kubeconfig", kubeconfig)
    assert (code, out.count("not installed")) == (0, 2)
    assert out.endswith(
        "policy    none: there is no FabricPolicy or ConfigMap railwright-policy in namespace railwright-system\n"
    )
    _, out, _ = await run(capsys, "--kubeconfig", kubeconfig, "-o", "json")
    absent = dict.fromkeys(("webhook", "extender", "policy", "policy_object"))
    assert json.loads(out) == {"client": version.VERSION, **absent}


async def test_an_invalid_policy_has_no_version(cluster, capsys):
    kubeconfig, objects = cluster
    objects[POLICY]["data"]["policy.yaml"] = "fabrics: {}"
    code, out, err = await run(capsys, "--kubeconfig", kubeconfig)
    assert (code, out) == (2, CLIENT)
    assert "ConfigMap railwright-system/railwright-policy is invalid" in err


async def test_the_version_of_the_command_needs_no_cluster(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert await run(capsys, "--client") == (0, CLIENT, "")
    code, out, err = await run(capsys)
    assert (code, out) == (2, CLIENT)
    assert "--client" in err
