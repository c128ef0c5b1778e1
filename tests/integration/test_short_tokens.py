"""A kubeconfig whose credential plugin gives tokens that soon expire, on a real API server."""

import asyncio
import sys

import pytest
import pytest_asyncio
import yaml
from api_stub import Cache
from plane import commands, manifests, servers, waiting

from railwright.cluster import client as clients
from railwright.cluster import reflector, resources

LEEWAY = 60  # seconds after its `exp` for which the API server takes a token (go-jose, jwt.DefaultLeeway)
PLUGIN = """
import json, pathlib, time
from plane import credentials
now, claims = int(time.time()), {claims}
lives = {{"iat": now - 3600, "nbf": now - 3600, "exp": now + {lifetime} - {leeway}}}
expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + {lifetime}))
token = credentials.sign_token(pathlib.Path({key!r}), claims | lives)
status = {{"token": token, "expirationTimestamp": expires}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}))
"""
COMMANDS = (
    ("check",),
    ("gangs",),
    ("fabric",),
    ("explain", "{demo}/job.yaml"),
    ("lint", "{demo}/job.yaml"),
    ("policy", "init", "--from-cluster"),
    ("disable", "--dry-run"),
)


@pytest_asyncio.fixture(loop_scope="session")
async def write_kubeconfig(plane, namespace, tmp_path):
    """Yield `write(lifetime)`: write a kubeconfig of the namespace's default account, which has all rights."""
    account = await plane.api.get("ServiceAccount", "default", namespace)
    name = f"system:serviceaccount:{namespace}:default"
    identity = {"name": "default", "uid": account["metadata"]["uid"]}
    claims = {"sub": name, "kubernetes.io": {"namespace": namespace, "serviceaccount": identity}}
    key = str(plane.certificates.folder / "sa.key")
    path = [str(servers.ROOT / "tests" / "integration"), str(servers.ROOT), str(servers.ROOT / "tests" / "support")]
    await plane.kubectl("create", "clusterrolebinding", namespace, "--clusterrole=cluster-admin", f"--user={name}")

    def write(lifetime: int) -> str:
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", PLUGIN.format(claims=claims, lifetime=lifetime, leeway=LEEWAY, key=key)],
            "env": [{"name": "PYTHONPATH", "value": ":".join(path)}],
            "interactiveMode": "Never",
        }
        document = yaml.safe_load(plane.kubeconfig.read_text())
        document["users"] = [{"name": document["users"][0]["name"], "user": {"exec": plugin}}]
        file = tmp_path / "kubeconfig"
        file.write_text(yaml.safe_dump(document))
        return str(file)

    yield write
    await plane.api.delete("ClusterRoleBinding", namespace)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
async def test_commands_authenticate_with_short_lived_tokens(site, write_kubeconfig, words):
    await site.policy(manifests.policy({"ib": manifests.fabric(gpusPerNode=8)}, defaultFabric="ib"))
    demo = servers.ROOT / "railwright" / "cli" / "demo"
    kubeconfig = write_kubeconfig(lifetime=60)
    _, out, err = await commands.railwright(*(word.format(demo=demo) for word in words), kubeconfig=kubeconfig)
    assert "Unauthorized" not in out + err, (out, err)


@pytest.mark.slow
async def test_a_watch_and_requests_continue_after_the_first_token_expires(plane, namespace, write_kubeconfig):
    client, cache = await clients.connect(write_kubeconfig(lifetime=15)), Cache()
    first = {"Authorization": f"Bearer {await client.get_token()}"}
    source = reflector.Reflector(client, reflector.WatchSpec(resources.NAMESPACES, cache))
    watching = asyncio.create_task(source.run())

    async def has_expired() -> bool:
        async with plane.strangers.get(f"{plane.api.server}/version", headers=first) as answer:
            return answer.status == 401

    try:
        await waiting.wait(lambda: namespace in cache.objects, describe="the first list")
        await waiting.wait(has_expired, seconds=120, describe="the end of the first token")
        assert await client.get("/version")
        await plane.api.patch("Namespace", namespace, {"metadata": {"labels": {"seen": "later"}}})
        await waiting.wait(lambda: cache.objects[namespace].metadata.labels.get("seen"), describe="a change to be seen")
    finally:
        watching.cancel()
        await client.close()
