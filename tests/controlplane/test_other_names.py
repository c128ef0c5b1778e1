"""An installation under another name and in another namespace: its servers work, and the check finds it."""

import asyncio
import contextlib
import json
import os
import pathlib
import sys

import pytest
import yaml
from plane import nodes as plane_nodes
from plane import releases, stand_ins

ROOT = pathlib.Path(__file__).parents[2]
NAMESPACE, NAME = "fabrics", "net"
# No scheduler is configured for it, nodes have no labels of leaves, and each server has one replica on the plane.
UNRELATED = {
    "volcano-configuration",
    "webhook-availability",
    "topology-labels",
    "timeouts",  # of all webhooks on a pod: Volcano's, and those that another test has registered
}
POLICY = """
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
defaultFabric: ib
fabrics:
  ib:
    transport: infiniband
    rails: [{name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}]
"""


LABELS = {"app.kubernetes.io/part-of": "railwright", "app.kubernetes.io/component": "webhook"}
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 2
  selector: {matchLabels: {app: any}}
  template:
    metadata: {labels: {app: any}}
    spec: {containers: [{name: webhook, image: any}]}
"""


async def check(plane, *options, **environment):
    """Return the exit code and the rows of `railwright check`."""
    command = [sys.executable, "-m", "railwright.cli", "check", f"--kubeconfig={plane.kubeconfig}", "-o", "json"]
    process = await asyncio.create_subprocess_exec(
        *command, *options, env={**os.environ, **environment}, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return process.returncode, {row["check"]: row for row in json.loads(out)["checks"]}


async def assert_version_shows_the_servers(plane, environment):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "railwright.cli", "version", f"--kubeconfig={plane.kubeconfig}", "-o", "json"),
        env={**os.environ, **environment},
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    versions = json.loads(out)
    assert versions["webhook"]
    assert versions["extender"]
    assert versions["policy"].startswith("sha256:")


async def assert_one_of_several_is_chosen(plane):
    """Check that with two installations the command asks for a namespace. The second is a Deployment only."""
    second = {**yaml.safe_load(DEPLOYMENT), "metadata": {"name": "other-webhook", "labels": LABELS}}
    await plane.make_namespace("others")
    try:
        await plane.api.create(second, namespace="others")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "railwright.cli", "check", f"--kubeconfig={plane.kubeconfig}"),
            cwd=ROOT,
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        out, message = await process.communicate()
        assert (process.returncode, out) == (2, b"")
        assert message.decode() == (
            "railwright: the cluster has 2 installations of railwright: net in namespace fabrics, other in namespace "
            "others; choose one by its namespace: railwright check -n fabrics\n"
        )
        assert (await check(plane, "-n", NAMESPACE))[0] == 0
        code, rows = await check(plane, "-n", "others")
        assert code == 1
        assert rows["webhook-deployment"]["state"] == "ok"
        variables = "RAILWRIGHT_NAMESPACE=others RAILWRIGHT_INSTALLATION=other"
        assert rows["namespace"]["detail"] == f"others; other commands find it by: export {variables}"
    finally:
        await plane.remove_namespace("others")


async def test_an_installation_under_another_name_works(plane, tmp_path):
    helm = releases.Helm(tmp_path, plane.kubeconfig, namespace=NAMESPACE)
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    await releases.clear(plane.api)
    machines = plane_nodes.Nodes(plane.api)
    running = stand_ins.StandIns(plane, tmp_path, namespace=NAMESPACE, name=NAME)
    try:
        await asyncio.gather(*(machines.make(f"named-{number}") for number in range(2)))
        options = (f"--set=fullnameOverride={NAME}", f"--set-file=policy.document={policy}")
        notes = await helm("install", "any", str(releases.CHART), "--create-namespace", *options)
        assert f"export RAILWRIGHT_NAMESPACE={NAMESPACE} RAILWRIGHT_INSTALLATION={NAME} " in notes
        await running.start()
        code, rows = await check(plane, "--wait=60", **running.environment)
        unexpected = {name: row for name, row in rows.items() if row["state"] in ("warn", "fail")}
        assert not unexpected.keys() - UNRELATED, unexpected
        assert code == 0, unexpected
        for name in ("webhook-deployment", "ca-bundle", "certs-rotation", "extender-lease", "policy-in-force"):
            assert rows[name]["state"] == "ok", rows[name]
        assert rows["dry-run"]["state"] in ("ok", "skip"), rows["dry-run"]
        code, by_labels = await check(plane)
        assert code == 0, by_labels
        assert {name: row["state"] for name, row in by_labels.items()} == {
            name: row["state"] for name, row in rows.items()
        }
        await assert_version_shows_the_servers(plane, running.environment)
        await assert_one_of_several_is_chosen(plane)
        with pytest.raises(releases.FailedError, match=f"MutatingWebhookConfiguration {NAME} belongs to another"):
            await releases.Helm(tmp_path, plane.kubeconfig).install("--create-namespace")
    finally:
        await running.stop()
        with contextlib.suppress(releases.FailedError):
            await helm("uninstall", "any")
        await plane.remove_namespace(NAMESPACE)
        await machines.remove()
