"""`railwright version` shows the version of the command, and those in the cluster if they can be read.

Unusable clusters: test_cluster_faults.py.
"""

import hashlib
import json

import pytest
import varied_clusters

from railwright.cli import __main__ as command_line
from railwright.fabric import version

DEPLOYMENTS = "/apis/apps/v1/namespaces/railwright-system/deployments"
POLICY = "/api/v1/namespaces/railwright-system/configmaps/railwright-policy"
CLIENT = f"client    {version.VERSION}\n"


def deployment(server: str, image: str) -> dict:
    containers = [{"name": "mesh-proxy", "image": "mesh:1"}, {"name": server, "image": image}]
    return {"metadata": {"name": "server"}, "spec": {"template": {"spec": {"containers": containers}}}}


@pytest.fixture
def _installed(cluster):
    for server in ("webhook", "extender"):
        cluster.keep(f"{DEPLOYMENTS}/railwright-{server}", deployment(server, f"registry/railwright:9.1.{server[0]}"))
    policy = {"metadata": {"name": "railwright-policy"}, "data": {"policy.yaml": varied_clusters.POLICY}}
    cluster.keep(POLICY, policy)


@pytest.mark.usefixtures("_installed")
async def test_version_shows_the_images_of_the_servers_and_the_digest_of_the_policy(run):
    digest = f"sha256:{hashlib.sha256(varied_clusters.POLICY.encode()).hexdigest()}"
    code, out, err = await run("version")
    lines = (
        "webhook   registry/railwright:9.1.w",
        "extender  registry/railwright:9.1.e",
        f"policy    {digest}",
    )
    assert (code, out, err) == (0, CLIENT + "\n".join(lines) + "\n", "")
    _, out, _ = await run("version", "-o", "json")
    assert json.loads(out) == {
        "client": version.VERSION,
        "webhook": "registry/railwright:9.1.w",
        "extender": "registry/railwright:9.1.e",
        "policy": digest,
    }


@pytest.mark.usefixtures("_installed")
async def test_a_missing_right_is_named(cluster, run):
    cluster.fault = lambda request: 403 if request.path == POLICY else None
    code, out, err = await run("version")
    assert (code, out) == (2, CLIENT)
    assert "kubectl auth can-i get configmaps/railwright-policy -n railwright-system" in err


async def test_missing_deployments_are_shown_as_not_installed(run):
    code, out, _ = await run("version")
    assert (code, out.count("not installed")) == (0, 2)
    assert out.endswith("policy    none: there is no ConfigMap railwright-system/railwright-policy\n")
    _, out, _ = await run("version", "-o", "json")
    absent = dict.fromkeys(("webhook", "extender", "policy"))
    assert json.loads(out) == {"client": version.VERSION, **absent}


def test_the_version_of_the_command_needs_no_cluster(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert (command_line.main(["version", "--client"]), *capsys.readouterr()) == (0, CLIENT, "")
    assert command_line.main(["version"]) == 2
    out, err = capsys.readouterr()
    assert (out, "--client" in err) == (CLIENT, True)
